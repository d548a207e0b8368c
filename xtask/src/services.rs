//! `services up|down`: the databases and brokers that the tests talk to. A room that needs a service which cannot be
//! started is a failure: a suite that skips because its database is missing proves nothing.

use std::path::Path;

use crate::command::{Failure, root};

/// A room of the library whose tests need a service.
struct Room {
    /// The folder, or the file without `.rs`, under `crates/hapax/src`.
    path: &'static str,
    service: &'static str,
}

/// Every room that may need one. A room is added to the tree together with the code here that starts its service.
const ROOMS: &[Room] = &[
    Room { path: "store/postgres", service: "PostgreSQL" },
    Room { path: "store/mysql", service: "MariaDB" },
    Room { path: "store/redis", service: "Redis" },
    Room { path: "broker/rabbitmq", service: "RabbitMQ" },
    Room { path: "broker/nats", service: "NATS" },
];

/// Starts or stops the services of the rooms that exist.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    match args {
        ["up" | "down"] => answer(&root()).map(|text| println!("{text}")),
        _ => Err(Failure::Usage("call it as `services up` or `services down`".into())),
    }
}

/// What there is to say about the rooms under `root`.
fn answer(root: &Path) -> Result<String, Failure> {
    let source = root.join("crates/hapax/src");
    let exists = |room: &&Room| source.join(room.path).is_dir() || source.join(format!("{}.rs", room.path)).is_file();
    let rooms: Vec<String> =
        ROOMS.iter().filter(exists).map(|room| format!("{} needs {}", room.path, room.service)).collect();
    if rooms.is_empty() {
        return Ok("services: no room in this tree needs a service".into());
    }
    let rooms = rooms.join(", ");
    Err(Failure::Failed(format!("services: {rooms}, which xtask/src/services.rs cannot start; teach it to")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_tree_without_such_rooms_needs_nothing() {
        let tree = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(answer(tree.path()), Ok("services: no room in this tree needs a service".into()));
    }

    #[test]
    fn a_room_whose_service_cannot_be_started_fails() {
        let tree = tempfile::tempdir().expect("a temporary folder");
        let broker = tree.path().join("crates/hapax/src/broker");
        fs::create_dir_all(&broker).expect("a folder");
        fs::write(broker.join("nats.rs"), "").expect("a file");
        let Err(Failure::Failed(why)) = answer(tree.path()) else { panic!("a missing service must fail") };
        assert!(why.contains("broker/nats needs NATS"), "{why}");
    }
}
