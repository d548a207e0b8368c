//! `services up|down`: the databases and brokers that the tests talk to. A room that needs a service which cannot be
//! had is a failure: a suite that skips because its database is missing proves nothing.
//!
//! What there is, is used; what is not there is started, as a private process with its files under `target/services`;
//! and only what was started here is ever stopped here. Where everything is found is printed and kept in
//! `target/services/env`, one `NAME=value` a line. The tests read the variable, or else that file.
//!
//! This room does not know what the tests do with a service.

mod clients;
mod knock;
mod machine;
mod pgbouncer;
mod postgres;
mod url;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Failure, root};
use machine::failed;

/// Something that tests talk to.
struct Service {
    /// How it is called in `services up NAME`.
    name: &'static str,
    title: &'static str,
    /// The folders, or files without `.rs`, under `crates/hapax` that need it.
    rooms: &'static [&'static str],
    /// What `up` gives.
    variables: &'static [&'static str],
    up: fn(&Site) -> Result<Answers, Failure>,
    down: fn(&Site) -> Result<Vec<String>, Failure>,
}

/// What a service answers with: variables and what they stand for.
type Answers = Vec<(&'static str, String)>;

/// Every service. A room is added to the tree together with the code here that starts what it needs.
const SERVICES: &[Service] = &[
    Service {
        name: "postgres",
        title: "PostgreSQL and PgBouncer",
        rooms: &["src/store/postgres"],
        variables: &[postgres::VARIABLE, pgbouncer::VARIABLE],
        up: |site| {
            let url = postgres::up(site)?;
            let pooled = pgbouncer::up(site, &url)?;
            Ok(vec![(postgres::VARIABLE, url), (pgbouncer::VARIABLE, pooled)])
        },
        // The pooler first, so that it does not see its server vanish.
        down: |site| Ok(pgbouncer::down(site)?.into_iter().chain(postgres::down(site)?).collect()),
    },
    Service {
        name: "clients",
        title: "Python with psycopg and Node with pg",
        rooms: &["tests/it/postgres/clients"],
        variables: &[clients::PYTHON, clients::NODE_MODULES],
        up: clients::up,
        down: nothing_runs,
    },
    unknown("mysql", "MariaDB", &["src/store/mysql"]),
    unknown("redis", "Redis", &["src/store/redis"]),
    unknown("rabbitmq", "RabbitMQ", &["src/broker/rabbitmq"]),
    unknown("nats", "NATS", &["src/broker/nats"]),
];

/// A service that nobody has written yet: a tree that needs it fails.
const fn unknown(name: &'static str, title: &'static str, rooms: &'static [&'static str]) -> Service {
    let up = |_: &Site| Err(failed("xtask/src/services/ cannot start it; teach it to"));
    Service { name, title, rooms, variables: &[], up, down: nothing_runs }
}

#[expect(clippy::unnecessary_wraps, reason = "one of the functions in the table, and others can fail")]
fn nothing_runs(_: &Site) -> Result<Vec<String>, Failure> {
    Ok(Vec::new())
}

/// Where services are looked for and where their files are.
#[derive(Debug)]
struct Site {
    /// The folder of the crate whose rooms are looked for.
    source: PathBuf,
    /// `target/services`.
    home: PathBuf,
    /// The environment's variables that begin with `HAPAX_`.
    given: BTreeMap<String, String>,
}

impl Site {
    fn of(root: &Path) -> Site {
        let given = std::env::vars().filter(|(name, _)| name.starts_with("HAPAX_")).collect();
        Site { source: root.join("crates/hapax"), home: root.join("target/services"), given }
    }

    /// A variable that is set to something.
    fn given(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The file that says where everything is.
    fn answers(&self) -> PathBuf {
        self.home.join("env")
    }

    /// Whether the tree has a room.
    fn has(&self, room: &str) -> bool {
        self.source.join(room).is_dir() || self.source.join(format!("{room}.rs")).is_file()
    }
}

/// Starts or stops services: those that the rooms of this tree need, or those that are named.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let site = Site::of(&root());
    match args.split_first() {
        Some((&"up", names)) => up(&site, names),
        Some((&"down", [])) => down(&site),
        _ => Err(Failure::Usage("call it as `services up`, `services up NAME…` or `services down`".into())),
    }
}

/// The services that are wanted, each with the reason why.
fn wanted(site: &Site, names: &[&str]) -> Result<Vec<(&'static Service, String)>, Failure> {
    if let Some(name) = names.iter().find(|name| SERVICES.iter().all(|service| service.name != **name)) {
        let known: Vec<&str> = SERVICES.iter().map(|service| service.name).collect();
        return Err(Failure::Usage(format!("there is no service `{name}`; there is {}", known.join(", "))));
    }
    let reason = |service: &'static Service| {
        if names.is_empty() {
            let room = service.rooms.iter().find(|room| site.has(room))?;
            return Some((service, format!("crates/hapax/{room} needs {}", service.title)));
        }
        names.contains(&service.name).then(|| (service, format!("you asked for {}", service.title)))
    };
    Ok(SERVICES.iter().filter_map(reason).collect())
}

fn up(site: &Site, names: &[&str]) -> Result<(), Failure> {
    let wanted = wanted(site, names)?;
    if wanted.is_empty() {
        println!("services: no room in this tree needs a service");
        return Ok(());
    }
    machine::folder(&site.home)?;
    // Two calls at once would start two of everything.
    let _alone = machine::lock(&site.home.join("lock"))?;
    let mut answers = parse(&fs::read_to_string(site.answers()).unwrap_or_default());
    let mut troubles = Vec::new();
    for (service, why) in wanted {
        // What held before holds no longer if it cannot be had now.
        answers.retain(|name, _| !service.variables.contains(&name.as_str()));
        match (service.up)(site) {
            Ok(found) => answers.extend(found.into_iter().map(|(name, value)| (name.to_string(), value))),
            Err(Failure::Failed(text) | Failure::Usage(text)) => troubles.push(format!("{why}: {text}")),
        }
    }
    machine::write(&site.answers(), &print(&answers))?;
    print!("{}", print(&answers));
    if troubles.is_empty() { Ok(()) } else { Err(failed(format!("services: {}", troubles.join("\n")))) }
}

fn down(site: &Site) -> Result<(), Failure> {
    if !site.home.is_dir() {
        println!("services: nothing was started here");
        return Ok(());
    }
    let _alone = machine::lock(&site.home.join("lock"))?;
    let mut said = Vec::new();
    for service in SERVICES {
        said.extend((service.down)(site)?);
    }
    // It would send the tests to doors that are shut.
    if site.answers().exists() {
        fs::remove_file(site.answers()).map_err(|error| failed(format!("{}: {error}", site.answers().display())))?;
    }
    println!(
        "services: {}",
        if said.is_empty() { "nothing that was started here runs".into() } else { said.join(", ") }
    );
    Ok(())
}

/// Reads `NAME=value` lines.
fn parse(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// Writes `NAME=value` lines. Nothing is quoted: whoever reads them takes the rest of the line.
fn print(answers: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = answers.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with one room.
    fn tree(room: &str) -> (tempfile::TempDir, Site) {
        let tree = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir_all(tree.path().join("crates/hapax").join(room)).expect("a folder");
        let site = Site { given: BTreeMap::new(), ..Site::of(tree.path()) };
        (tree, site)
    }

    #[test]
    fn a_tree_without_such_rooms_needs_nothing() {
        let (_tree, site) = tree("src/store/sqlite");
        assert!(wanted(&site, &[]).expect("a list").is_empty());
        assert_eq!(up(&site, &[]), Ok(()));
        assert!(!site.home.exists(), "nothing was written");
    }

    #[test]
    fn a_room_whose_service_cannot_be_started_fails() {
        let (tree, site) = tree("src/broker");
        fs::write(tree.path().join("crates/hapax/src/broker/nats.rs"), "").expect("a file");
        let Err(Failure::Failed(why)) = up(&site, &[]) else { panic!("a missing service must fail") };
        assert!(why.contains("crates/hapax/src/broker/nats needs NATS"), "{why}");
    }

    #[test]
    fn a_service_can_be_asked_for_by_its_name() {
        let (_tree, site) = tree("src/store/sqlite");
        let found = wanted(&site, &["clients"]).expect("a list");
        assert_eq!(found.iter().map(|(service, _)| service.name).collect::<Vec<_>>(), ["clients"]);
        let Err(Failure::Usage(why)) = wanted(&site, &["oracle"]) else { panic!("an unknown name must fail") };
        assert!(why.contains("postgres, clients, mysql"), "{why}");
    }

    #[test]
    fn answers_survive_the_file() {
        let text = "HAPAX_A=postgres://u@h:1/d?a=1&b=2\nHAPAX_B=/x y/z\n";
        assert_eq!(print(&parse(text)), text);
    }

    #[test]
    fn nothing_started_is_nothing_stopped() {
        let (_tree, site) = tree("src/store/postgres");
        assert_eq!(down(&site), Ok(()));
    }
}
