//! Knocks at a PostgreSQL server: does it let us in, and what may we do there? Written down here since neither psql nor
//! a driver has to be on the machine, and since the question is small: three messages of the protocol.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use super::url::Target;

/// How long a server may take to answer. One that is starting up may need a while.
const PATIENCE: Duration = Duration::from_secs(10);

/// What happened at the door.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// We are in, without a question. `may_create`: we may make databases, and schemas in this one.
    Open { may_create: bool },
    /// It wants a password or the like.
    Asks,
    /// It said no, in these words.
    Refuses(String),
    /// Nobody answers there, or not as PostgreSQL does.
    Shut(String),
}

/// Asks for what tests do all the time: each has a schema or a database of its own.
const QUESTION: &str = "select (rolsuper or rolcreatedb) and has_database_privilege(current_database(), 'create') \
                        from pg_roles where rolname = current_user";

/// Knocks.
pub(super) fn knock(target: &Target) -> Door {
    match connect(target) {
        Ok(mut stream) => converse(&mut stream, target).unwrap_or_else(|error| Door::Shut(error.to_string())),
        Err(error) => Door::Shut(error.to_string()),
    }
}

fn connect(target: &Target) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the host has no address");
    for address in (target.host.as_str(), target.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The whole talk: who we are, the question, and its answer.
fn converse(stream: &mut (impl Read + Write), target: &Target) -> io::Result<Door> {
    let mut hello = 196_608_u32.to_be_bytes().to_vec();
    for text in ["user", &target.user, "database", &target.database] {
        hello.extend(text.as_bytes());
        hello.push(0);
    }
    hello.push(0);
    send(stream, &hello)?;
    let mut asked = false;
    let mut may_create = false;
    loop {
        let (kind, body) = receive(stream)?;
        match kind {
            b'R' if body.starts_with(&[0; 4]) => {}
            b'R' => return Ok(Door::Asks),
            b'E' => return Ok(Door::Refuses(words(&body))),
            b'Z' if asked => {
                // A goodbye that is lost changes nothing.
                let _ = stream.write_all(&[b'X', 0, 0, 0, 4]);
                return Ok(Door::Open { may_create });
            }
            b'Z' => {
                asked = true;
                stream.write_all(b"Q")?;
                send(stream, format!("{QUESTION}\0").as_bytes())?;
            }
            // One column: its count, its length, and `t` or `f`.
            b'D' => may_create = body.get(6) == Some(&b't'),
            _ => {}
        }
    }
}

/// Sends a body behind its length.
fn send(stream: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len() + 4).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), body].concat())?;
    stream.flush()
}

/// The next message: its kind and its body.
fn receive(stream: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    // What answers here on a port of somebody else may be anything.
    if !(4..=1_000_000).contains(&length) {
        return Err(io::Error::other("what answers there is no PostgreSQL server"));
    }
    let mut body = vec![0; length as usize - 4];
    stream.read_exact(&mut body)?;
    Ok((head[0], body))
}

/// The message in an error, which is a list of fields: a letter, a text, a zero.
fn words(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0);
    let message = fields.filter_map(|field| field.strip_prefix(b"M")).map(String::from_utf8_lossy).next();
    message.map_or_else(|| "no reason given".into(), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says these bytes whatever it hears.
    struct Scripted(io::Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Scripted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("short");
        [&[kind], &length.to_be_bytes()[..], body].concat()
    }

    fn said(messages: &[Vec<u8>]) -> Door {
        let target = Target::parse("postgres://me@h/d").expect("legal");
        let mut server = Scripted(io::Cursor::new(messages.concat()), Vec::new());
        let door = converse(&mut server, &target).unwrap_or_else(|error| Door::Shut(error.to_string()));
        assert!(server.1[8..].starts_with(b"user\0me\0database\0d\0\0"));
        door
    }

    #[test]
    fn every_door_is_told_from_the_others() {
        let (welcome, ready) = (message(b'R', &[0; 4]), message(b'Z', b"I"));
        let row = |value| message(b'D', &[0, 1, 0, 0, 0, 1, value]);
        let talk = |value| [welcome.clone(), ready.clone(), row(value), ready.clone()];
        assert_eq!(said(&talk(b't')), Door::Open { may_create: true });
        assert_eq!(said(&talk(b'f')), Door::Open { may_create: false });
        assert_eq!(said(&[message(b'R', &[0, 0, 0, 10])]), Door::Asks);
        let no = message(b'E', b"SFATAL\0Mrole \"me\" does not exist\0\0");
        assert_eq!(said(&[no]), Door::Refuses("role \"me\" does not exist".into()));
        assert!(matches!(said(&[b"HTTP/1.1 400".to_vec()]), Door::Shut(_)));
    }
}
