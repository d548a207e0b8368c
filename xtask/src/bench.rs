//! `bench exec`: what it costs to put a command under `hapax exec`, against the raw floor beside it. Not part of
//! `check`: a figure is worth something only on a machine that does nothing else.

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::command::{Failure, cargo, must, root};

/// Rounds that are measured. Each does every kind of call once: what the machine does beside us meets all alike.
const ROUNDS: usize = 60;
/// Rounds before them: the page cache, the store's first transaction.
const WARM_UP: usize = 5;

/// A figure with its goal. Without one it stands there to be compared with.
struct Bar {
    name: &'static str,
    goal: Option<f64>,
    got: f64,
    unit: &'static str,
}

impl Bar {
    const fn floor(name: &'static str, got: f64, unit: &'static str) -> Bar {
        Bar { name, goal: None, got, unit }
    }

    const fn at_most(name: &'static str, goal: f64, got: f64, unit: &'static str) -> Bar {
        Bar { name, goal: Some(goal), got, unit }
    }

    fn met(&self) -> bool {
        self.goal.is_none_or(|goal| self.got <= goal)
    }

    fn line(&self) -> String {
        let goal = self.goal.map_or_else(|| "-".into(), |goal| format!("{goal:.0} {}", self.unit));
        let met = match self.goal {
            None => "floor",
            Some(_) if self.met() => "yes",
            Some(_) => "NO",
        };
        format!("{:<48} {goal:>8} {:>12} {met:>6}", self.name, format!("{:.2} {}", self.got, self.unit))
    }
}

/// Builds the release program, measures, prints; fails when a goal is missed.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    if args != ["exec"] {
        return Err(Failure::Usage("call it as `bench exec`".into()));
    }
    must(&mut cargo(&["build", "--release", "--locked", "--package", "hapax-server", "--bin", "hapax"]))?;
    let bench = Bench::new()?;
    let measured = bench.measure();
    let swept = fs::remove_dir_all(&bench.folder);
    let bars = measured?;
    swept.map_err(|error| failed(&format!("{} was not removed", bench.folder.display()), &error))?;
    println!("medians of {ROUNDS} rounds, the kinds of calls taking turns; the store is a warm SQLite file");
    println!("{}", neighbours());
    println!("{:<48} {:>8} {:>12} {:>6}", "name", "goal", "got", "met");
    for bar in &bars {
        println!("{}", bar.line());
    }
    match bars.iter().filter(|bar| !bar.met()).count() {
        0 => Ok(()),
        missed => Err(Failure::Failed(format!("bench: {missed} goals missed"))),
    }
}

struct Bench {
    hapax: PathBuf,
    folder: PathBuf,
}

/// What is measured in turns.
#[derive(Clone, Copy)]
enum Call {
    Shell,
    Exec,
    True,
    Version,
}

const CALLS: [Call; 4] = [Call::Shell, Call::Exec, Call::True, Call::Version];
/// A built-in of the shell says that the command has begun: no further process blurs the figure.
const SCRIPT: &str = "echo";

/// One call: until its first byte on stdout, and until its end.
struct Took {
    first_ms: f64,
    whole_ms: f64,
}

impl Bench {
    fn new() -> Result<Bench, Failure> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        // Beside the build, and not in the folder for temporary files: that is often kept in memory, where a store's
        // commit costs nothing.
        let folder = target.join(format!("bench-exec-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| failed(&format!("{} cannot be made", folder.display()), &error))?;
        Ok(Bench { hapax: target.join("release/hapax"), folder })
    }

    fn measure(&self) -> Result<Vec<Bar>, Failure> {
        let mut took: [Vec<Took>; CALLS.len()] = Default::default();
        for round in 0..WARM_UP + ROUNDS {
            for call in CALLS {
                let one = time(&mut self.command(call))?;
                if round >= WARM_UP {
                    took[call as usize].push(one);
                }
            }
        }
        let first = |call: Call| median(took[call as usize].iter().map(|took| took.first_ms));
        let whole = |call: Call| median(took[call as usize].iter().map(|took| took.whole_ms));
        let (hapax, watchdog) = self.memory()?;
        Ok(vec![
            Bar::floor("command begins, sh -c", first(Call::Shell), "ms"),
            Bar::floor("command begins, hapax exec -- sh -c", first(Call::Exec), "ms"),
            Bar::at_most("difference", 15.0, first(Call::Exec) - first(Call::Shell), "ms"),
            Bar::floor("whole call, sh -c", whole(Call::Shell), "ms"),
            Bar::floor("whole call, hapax exec -- sh -c", whole(Call::Exec), "ms"),
            Bar::floor("an empty process (true)", whole(Call::True), "ms"),
            Bar::at_most("start of the program (hapax version)", 10.0, whole(Call::Version), "ms"),
            Bar::at_most("peak memory of hapax (VmHWM)", 15.0, hapax, "MiB"),
            Bar::at_most("peak memory of its watchdog (VmHWM)", 15.0, watchdog, "MiB"),
            Bar::floor("both together", hapax + watchdog, "MiB"),
        ])
    }

    fn command(&self, call: Call) -> Command {
        let plain = |program: &str, args: &[&str]| {
            let mut command = Command::new(program);
            command.args(args);
            command
        };
        match call {
            Call::Shell => plain("sh", &["-c", SCRIPT]),
            Call::Exec => self.exec(SCRIPT),
            Call::True => plain("true", &[]),
            Call::Version => plain(&self.hapax.to_string_lossy(), &["version"]),
        }
    }

    fn exec(&self, script: &str) -> Command {
        let mut command = Command::new(&self.hapax);
        command.args(["exec", "--lock", "bench", "--store"]);
        command.arg(format!("sqlite:{}", self.folder.join("warm.db").display()));
        command.args(["--", "sh", "-c", script]);
        command
    }

    /// Peak memory of hapax and of its watchdog while a command sleeps, in MiB.
    fn memory(&self) -> Result<(f64, f64), Failure> {
        let mut hapax = start(&mut self.exec("echo; exec sleep 60"))?;
        let peaks = first_byte(&mut hapax).and_then(|()| {
            let watchdog = fs::read_to_string(format!("/proc/{0}/task/{0}/children", hapax.id()))?;
            Ok((peak_mib(&hapax.id().to_string())?, peak_mib(watchdog.trim())?))
        });
        // Its watchdog ends the command.
        let _ = hapax.kill();
        let _ = hapax.wait();
        peaks.map_err(|error| failed("the memory of hapax and its watchdog was not found", &error))
    }
}

fn start(command: &mut Command) -> Result<Child, Failure> {
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    started.map_err(|error| failed(&format!("{} did not start", command.get_program().display()), &error))
}

/// Waits until something stands on stdout, or nothing can come any more.
fn first_byte(child: &mut Child) -> io::Result<()> {
    match &mut child.stdout {
        Some(stdout) => stdout.read(&mut [0]).map(drop),
        None => Ok(()),
    }
}

fn time(command: &mut Command) -> Result<Took, Failure> {
    let begun = Instant::now();
    let mut child = start(command)?;
    let lost = |error: io::Error| failed("a call could not be followed", &error);
    first_byte(&mut child).map_err(lost)?;
    let first = begun.elapsed();
    let status = child.wait().map_err(lost)?;
    let whole = begun.elapsed();
    if !status.success() {
        return Err(Failure::Failed(format!("bench: {} ended with {status}", command.get_program().display())));
    }
    Ok(Took { first_ms: first.as_secs_f64() * 1e3, whole_ms: whole.as_secs_f64() * 1e3 })
}

/// Peak memory of a process in MiB, as the kernel counts it.
fn peak_mib(pid: &str) -> io::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    let kib: u32 = kib.ok_or_else(|| io::Error::other(format!("no VmHWM of process {pid}")))?;
    Ok(f64::from(kib) / 1024.0)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What else the machine did: hapax and its watchdog hand over to each other several times before the command begins,
/// and each time wait in the queue with whatever else wants a processor.
fn neighbours() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("?").to_owned();
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("load average of the last minute: {load} on {processors} processors; without neighbours it is below 1")
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::Failed(format!("bench: {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_up_to_its_last_bit_and_a_floor_always() {
        assert!(Bar::at_most("x", 15.0, 15.0, "ms").met() && !Bar::at_most("x", 15.0, 15.1, "ms").met());
        assert!(Bar::floor("x", 1e9, "ms").met());
        assert!(Bar::at_most("x", 15.0, 16.0, "ms").line().ends_with("NO"));
    }

    #[test]
    fn the_figures_of_a_process_are_found() {
        assert!(peak_mib("self").expect("Linux shows us to ourselves") > 0.1);
        assert!(median([3.0, 1.0, 2.0].into_iter()).to_bits() == 2.0_f64.to_bits());
    }
}
