//! Is there an order? The search of Wing and Gong, with the memory of Lowe: commands that overlapped may have happened
//! in any order, others only in the order in which they came.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::clock::Now;
use crate::model::observe::{Answer, Command};
use crate::model::{Model, Refusal};

/// One command of one caller, with the moments between which it happened.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) command: Command,
    pub(super) answer: Result<Answer, Refusal>,
    pub(super) asked: u64,
    pub(super) answered: u64,
}

/// Where the search gives up. Far more than histories of this suite need.
const STEPS_MAX: u32 = 200_000;

/// Finds an order of all events, given for each caller in turn, in which `model` allows every answer.
///
/// # Errors
/// The longest beginning of an order that was found, and why it does not go on.
pub(super) fn find_order(model: &Model, now: Now, callers: &[Vec<Event>]) -> Result<Vec<usize>, String> {
    let mut search = Search { now, callers, seen: HashSet::new(), steps: 0, best: (Vec::new(), Vec::new()) };
    let mut order = Vec::new();
    if search.go(model, &mut vec![0; callers.len()], &mut order) {
        return Ok(order);
    }
    if search.steps >= STEPS_MAX {
        return Err(format!("no order was found in {STEPS_MAX} steps; the history is too long to judge"));
    }
    let (begin, reasons) = search.best;
    Err(format!("no order of them is lawful; after the callers {begin:?}:\n{}", reasons.join("\n")))
}

struct Search<'a> {
    now: Now,
    callers: &'a [Vec<Event>],
    /// Places and states from which there is no way on.
    seen: HashSet<(Vec<usize>, u64)>,
    steps: u32,
    /// The longest beginning so far, by caller, and why none of the next commands may follow.
    best: (Vec<usize>, Vec<String>),
}

impl Search<'_> {
    fn go(&mut self, model: &Model, at: &mut Vec<usize>, order: &mut Vec<usize>) -> bool {
        if at.iter().zip(self.callers).all(|(at, events)| *at == events.len()) {
            return true;
        }
        self.steps += 1;
        if self.steps >= STEPS_MAX || !self.seen.insert((at.clone(), digest(model))) {
            return false;
        }
        let mut reasons = Vec::new();
        for caller in 0..self.callers.len() {
            let Some(event) = self.next(at, caller) else { continue };
            let mut after = model.clone();
            if let Err(reason) = after.observe(self.now, &event.command, &event.answer) {
                after = model.clone();
                if !self.passes_over(&mut after, (caller, event)) {
                    reasons.push(format!("- caller {}: {reason}", caller + 1));
                    continue;
                }
            }
            at[caller] += 1;
            order.push(caller + 1);
            if self.go(&after, at, order) {
                return true;
            }
            order.pop();
            at[caller] -= 1;
        }
        if order.len() >= self.best.0.len() && !reasons.is_empty() {
            self.best = (order.clone(), reasons);
        }
        false
    }

    /// Whether it is an empty claim that passed over what others held just then.
    fn passes_over(&self, after: &mut Model, (caller, event): (usize, &Event)) -> bool {
        let (Command::Claim(request), Ok(Answer::Claimed(claimed))) = (&event.command, &event.answer) else {
            return false;
        };
        let beside = |other: &Event| other.asked < event.answered && event.asked < other.answered;
        let mut others = self.callers.iter().enumerate().filter(|(n, _)| *n != caller).flat_map(|(_, events)| events);
        claimed.jobs.is_empty() && others.any(beside) && after.observe_passing_over(self.now, request).is_ok()
    }

    /// The next event of a caller, if it may come first of all that are left: none of them was answered before it was
    /// asked.
    fn next(&self, at: &[usize], caller: usize) -> Option<&Event> {
        let event = self.callers[caller].get(at[caller])?;
        let mut others = at.iter().zip(self.callers).filter_map(|(at, events)| events.get(*at));
        others.all(|other| other.answered >= event.asked).then_some(event)
    }
}

fn digest(model: &Model) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{model:?}").hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::super::world::lock;
    use super::*;
    use crate::clock::Micros;
    use crate::id::Fence;
    use crate::model::{LockAnswer, LockRef, LockRequest};

    fn granted(request: &LockRequest, fence: i64, (asked, answered): (u64, u64)) -> Event {
        let lock = LockRef { name: request.name.clone(), slot: 0, fence: Fence::from_i64(fence) };
        let answer = Ok(Answer::Lock(LockAnswer::Granted(lock)));
        Event { command: Command::AcquireLock(request.clone()), answer, asked, answered }
    }

    fn released(request: &LockRequest, fence: i64, (asked, answered): (u64, u64)) -> Event {
        let lock = LockRef { name: request.name.clone(), slot: 0, fence: Fence::from_i64(fence) };
        Event { command: Command::ReleaseLock(lock), answer: Ok(Answer::Unit), asked, answered }
    }

    fn order(callers: &[Vec<Event>]) -> Result<Vec<usize>, String> {
        find_order(&Model::new(), Now { wall: Micros(0), lease: Micros(0) }, callers)
    }

    #[test]
    fn overlapping_commands_may_come_in_either_order() {
        let (one, two) = (lock("x"), lock("x"));
        let callers = [vec![granted(&one, 2, (0, 9))], vec![granted(&two, 1, (1, 2)), released(&two, 1, (3, 4))]];
        assert_eq!(order(&callers), Ok(vec![2, 2, 1]), "the second came first, and gave it back");
    }

    #[test]
    fn two_grants_at_once_have_no_order() {
        let callers = [vec![granted(&lock("x"), 1, (0, 3))], vec![granted(&lock("x"), 2, (1, 2))]];
        assert!(order(&callers).expect_err("both hold it").contains("no order of them is lawful"));
    }

    #[test]
    fn a_claim_passes_over_only_what_another_holds_just_then() {
        let (mut model, now) = (Model::new(), Now { wall: Micros(0), lease: Micros(0) });
        let new = super::super::world::instance();
        model.register(now, &new).expect("a new id");
        model.enqueue(now, &[super::super::world::job()]);
        let request = super::super::world::wish(new.id);
        let empty = |asked, answered| Event {
            command: Command::Claim(request.clone()),
            answer: Ok(Answer::Claimed(crate::model::ClaimAnswer::default())),
            asked,
            answered,
        };
        let look =
            |asked, answered| Event { command: Command::Now, answer: Ok(Answer::Now(now.wall)), asked, answered };
        assert!(find_order(&model, now, &[vec![empty(0, 3)], vec![look(1, 2)]]).is_ok());
        assert!(find_order(&model, now, &[vec![empty(0, 1)], vec![look(2, 3)]]).is_err(), "nobody was there beside it");
    }

    #[test]
    fn nobody_is_answered_before_they_asked() {
        let (one, two) = (lock("x"), lock("x"));
        let callers = [vec![granted(&one, 2, (0, 1))], vec![granted(&two, 1, (2, 3)), released(&two, 1, (4, 5))]];
        assert!(order(&callers).is_err(), "the first had the lock before the second asked for it");
    }
}
