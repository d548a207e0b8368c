//! Just enough of a PostgreSQL URL to reach the server behind it.

use crate::command::Failure;

use super::machine::failed;

/// The parts of `postgres://user:password@host:port/database`; what follows `?` is for the drivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) password: Option<String>,
    pub(super) database: String,
}

impl Target {
    /// Takes a URL apart. What is left out is what PostgreSQL's own programs take for it.
    pub(super) fn parse(url: &str) -> Result<Target, Failure> {
        // The URL may hold a password, so it is not repeated.
        let wrong = |what: &str| failed(format!("{what}; write it as postgres://user@127.0.0.1:5432/postgres"));
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| wrong("it does not begin with `postgres://`"))?;
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(plain(password))),
            None => (login, None),
        };
        // The colon of a port is the one behind the brackets of an IPv6 address.
        let (host, port) = match place.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
            Some((host, port)) => (host, port.parse().map_err(|_| wrong("its port is no number up to 65535"))?),
            None => (place, 5432),
        };
        let host = plain(host.trim_start_matches('[').trim_end_matches(']'));
        if host.is_empty() || host.starts_with('/') {
            return Err(wrong("it names no host to be reached by TCP, which the tests with a proxy need"));
        }
        let user = if user.is_empty() { "postgres".into() } else { plain(user) };
        let database = if database.is_empty() { user.clone() } else { plain(database) };
        Ok(Target { host, port, user, password, database })
    }

    /// A URL without a password.
    pub(super) fn open(port: u16, user: &str) -> String {
        format!("postgres://{}@127.0.0.1:{port}/postgres", quoted(user))
    }
}

/// The text with `%20` and the like resolved.
fn plain(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let code = more.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = code.and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|_| *first == b'%');
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &more[2..] } else { more };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The text as a part of a URL.
fn quoted(text: &str) -> String {
    let quote = |byte: u8| match byte {
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(quote).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let whole = Target::parse("postgres://me:s%40f%3Ae@db.example:6000/jobs?sslmode=disable").expect("legal");
        let (host, user, database) = ("db.example".into(), "me".into(), "jobs".into());
        assert_eq!(whole, Target { host, port: 6000, user, password: Some("s@f:e".into()), database });
        let short = Target::parse("postgresql://[::1]").expect("legal");
        let (host, user, database) = ("::1".into(), "postgres".into(), "postgres".into());
        assert_eq!(short, Target { host, port: 5432, user, password: None, database });
        assert_eq!(Target::parse("postgres://a@h:1").expect("legal").database, "a");
    }

    #[test]
    fn a_url_that_cannot_be_reached_by_tcp_is_refused_without_repeating_it() {
        for url in
            ["mysql://a:secret@h", "postgres://a:secret@h:99999/d", "postgres://a:secret@%2Frun/d", "postgres:///d"]
        {
            let Err(Failure::Failed(why)) = Target::parse(url) else { panic!("{url} must be refused") };
            assert!(why.contains("write it as") && !why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn a_user_of_any_name_survives_the_url() {
        let url = Target::open(5433, "a b/@ü");
        let target = Target::parse(&url).expect("legal");
        assert_eq!((target.user.as_str(), target.port, target.database.as_str()), ("a b/@ü", 5433, "postgres"));
    }
}
