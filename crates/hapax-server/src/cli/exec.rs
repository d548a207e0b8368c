//! `hapax exec`: a command under a lock, or once per period.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use hapax::model::schedule::{Length, Period, zone};
use hapax::{Boundary, Name, OnceKey};

use super::Global;
use crate::exec::claim::{SCOPE, key_value};
use crate::exec::plan::{DoneOn, OnStoreDown, Once, Plan, WantedScope};
use crate::exit::Failure;

/// Shortest lease: a renewal, a grace and a margin have to fit into it.
const TTL_MIN: Duration = Duration::from_secs(1);
/// Longest lease.
const TTL_MAX: Duration = Duration::from_hours(24);
/// Stands for the longest period name when the length of a key is checked.
const PERIOD_SAMPLE: &str = "P3650w6d23h59m59s999ms@2026-11-30T13:00:00Z";

const AFTER: &str = "\
Once per period:
  The work is named by --key, the period by --once-per: day, week (ISO 8601) or
  month in --tz; a length such as 1h, counted from 1970-01-01T00:00Z; or
  five-field cron, where a period lasts from one instant to the next. An hour
  that the clock leaves out fires at its end, one that comes twice fires the
  first time. The store's clock says which period it is, once, at the beginning
  of the call.
  Done counts until 30 days after the period. Callers that come while another
  does it wait for its outcome, at most --wait, else --timeout, else 1 h: done
  gives 0 or -E; failed, and one of them takes over; wait over gives 75.
  The key is claimed before the lock is taken. Who waits for an outcome holds
  nothing.

What the command finds in its environment:
  HAPAX_FENCE     a number that grows with every lease of the lock, for
                  `... WHERE id = $1 AND fence <= $2`
  HAPAX_RUN_ID    of this attempt
  HAPAX_ATTEMPT   which attempt at the work it is, from 1
  HAPAX_LOCK      the lock
  HAPAX_KEY       the key; HAPAX_PERIOD is its period
  HAPAX_DEADLINE  when --timeout will stop it (UTC)
  HAPAX_REPORT    a file for lines such as rows=1200 or progress=40%, which are
                  kept with the result
  TRACEPARENT     W3C trace context, kept if it is set

Exit codes:
  0      the command succeeded, or was done before (-E CODE changes the latter)
  2      bad usage, before anything ran
  69     the store is away, or busy for longer than --wait and 30 s; the command
         was not started
  70     in doubt: the command ran, its result could not be recorded. With
         --done-on start it counts as done, else it may run again
  75     held by another for longer than --wait
  76     the lease was lost while it ran; it was stopped
  78     bad configuration
  124    --timeout passed; it was stopped
  125    a mistake of hapax itself
  126    it cannot be executed
  127    it was not found
  128+n  it was ended by signal n
  any other code is the command's own. --result-file tells apart what the
  command itself ends with 69, 70, 75 ...

How the command is stopped:
  A watchdog process is the command's parent, in a session of its own. Before
  the lease can pass on it stops every process of that session and every
  descendant: TERM, then KILL after --grace, or after a quarter of --ttl if that
  is less. It does so when hapax loses the lease, is killed, is stopped by
  Ctrl-Z, or hangs. TERM, INT, HUP, QUIT, USR1, USR2 and WINCH sent to hapax are
  passed on to the command's process group. What the command leaves running in
  its session when it ends is stopped as well; start a daemon by setsid or
  systemd-run.

Limits:
  A lease is no mutex. While the whole machine or the watchdog itself is frozen
  nothing can be stopped. If hapax and its watchdog are both killed with -9,
  nobody stops the command. A descendant that made a session of its own and
  whose parents have all ended is found only as long as the watchdog lives; a
  set-uid program may refuse our signals; a process that hangs in the kernel
  dies when the kernel lets it. What the command writes elsewhere should check
  HAPAX_FENCE there. The command has no controlling terminal: /dev/tty is not
  for it.
  A SQLite store protects the processes of one host; --scope fleet refuses to
  run with one.

Examples:
  hapax exec --once-per day --key backup -- /usr/local/bin/backup
    in the crontab of several hosts
  hapax exec --lock deploy --wait 10m -- ./deploy.sh
    one deploy at a time
  hapax exec --lock api --permits 4 -- ./import.sh
    at most four at once
  hapax exec --once-per '0 2 * * *' --tz Europe/Berlin --key report \\
      --attempts 3 --timeout 20m -- ./report.sh";

/// Run a command under a lock, or once per period
///
/// A flock(1) that also knows "once per day", and that stops the command before another may start it.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER, after_help = "`hapax exec --help` has the exit codes, limits and examples.")]
pub(crate) struct Exec {
    /// Run the work of this key once per day, week, month, DURATION or 'CRON'
    #[arg(long, value_name = "PERIOD", value_parser = period, requires = "key")]
    once_per: Option<Period>,
    /// What is done once
    #[arg(long, value_name = "KEY", requires = "once_per")]
    key: Option<String>,
    /// IANA zone of the period [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "once_per")]
    tz: Option<String>,
    /// Hold this lock while the command runs [default: the key]
    #[arg(long, value_name = "NAME")]
    lock: Option<String>,
    /// How many may hold the lock at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    permits: u32,
    /// How long to wait for others [default: 0 for a lock, see below for a key]
    #[arg(long, value_name = "DURATION", value_parser = length)]
    wait: Option<Duration>,
    /// How long the lease outlives a hapax that has gone silent; it is renewed at a third
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = length)]
    ttl: Duration,
    /// Stop the command after this long
    #[arg(long, value_name = "DURATION", value_parser = length)]
    timeout: Option<Duration>,
    /// How long a command that is being stopped has between TERM and KILL
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = length)]
    grace: Duration,
    /// When the work of the period counts as done
    #[arg(long, value_enum, value_name = "WHEN", default_value_t, requires = "once_per")]
    done_on: DoneOn,
    /// How often this call tries the command until it succeeds, after pauses of 1 s, 2 s, 4 s ... 1 min
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    attempts: u32,
    /// What to do when the store is away
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    on_store_down: OnStoreDown,
    /// Exit code when the work was done before
    #[arg(short = 'E', long = "done-exit-code", value_name = "CODE", default_value_t = 0)]
    done_exit_code: u8,
    /// Write one JSON object with the outcome into this file
    #[arg(long, value_name = "FILE")]
    result_file: Option<PathBuf>,
    /// Refuse to run unless the store protects the processes of this host, or the whole fleet
    #[arg(long, value_enum, value_name = "SCOPE")]
    scope: Option<WantedScope>,
    /// Say nothing when the work was done before
    #[arg(short, long)]
    quiet: bool,
    /// The command and its arguments, behind `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Exec {
    /// Runs the command; the exit code may be its own.
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let plan = self.plan()?;
        crate::exec::run(&plan, global.place(), &global.output()).await.map(ExitCode::from)
    }

    fn plan(self) -> Result<Plan, Failure> {
        let once = match (self.once_per, self.key) {
            (Some(period), Some(key)) => Some(once(period, key, self.tz.as_deref())?),
            _ => None,
        };
        let lock = match (self.lock, &once) {
            (Some(lock), _) => Name::new("lock", &lock)?.to_string(),
            (None, Some(once)) => {
                let lock = Name::new("lock", &once.key).map_err(Failure::from);
                lock.map_err(|failure| failure.mend("give a name of at most 128 bytes with --lock"))?.to_string()
            }
            (None, None) => {
                let mend = "give --lock NAME, or --once-per PERIOD with --key KEY";
                return Err(Failure::usage("nothing says what the command must not do twice", mend));
            }
        };
        if !(TTL_MIN..=TTL_MAX).contains(&self.ttl) {
            return Err(Failure::usage(format!("ttl is {:?}", self.ttl), "use 1s to 24h"));
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Failure::usage("timeout is 0", "leave it out, or give a length such as 20m"));
        }
        Ok(Plan {
            command: self.command,
            once,
            lock: Some(lock),
            permits: self.permits,
            wait: self.wait,
            ttl: self.ttl,
            timeout: self.timeout,
            grace: self.grace,
            done_on: self.done_on,
            attempts: self.attempts,
            on_store_down: self.on_store_down,
            skip_code: self.done_exit_code,
            result_file: self.result_file,
            scope: self.scope,
            quiet: self.quiet,
        })
    }
}

fn once(period: Period, key: String, tz: Option<&str>) -> Result<Once, Failure> {
    if tz.is_some() && !period.has_zone() {
        let what = format!("periods of {period} are counted from 1970-01-01T00:00Z, whatever the zone");
        return Err(Failure::usage(what, "leave out --tz, or use day, week, month or a cron expression"));
    }
    OnceKey::new(Boundary::Claim, Name::new("scope", SCOPE)?, &key_value(&key, PERIOD_SAMPLE))?;
    if key.trim().is_empty() {
        return Err(Failure::usage("key is empty", "name the work, such as --key backup"));
    }
    Ok(Once { key, period, zone: zone(tz.unwrap_or("UTC"))? })
}

fn period(text: &str) -> Result<Period, hapax::Error> {
    text.parse()
}

fn length(text: &str) -> Result<Duration, hapax::Error> {
    Length::parse("it", text).map(Length::as_duration)
}
