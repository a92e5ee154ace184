//! Computes the times at which entries of a schedule are due, whatever clocks do.

use std::time::Duration;

use anyhow::{Context, anyhow};
use croner::Cron;
use croner::parser::{CronParser, Seconds};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// If the clock is set back by more than this, it was wrong before, and the timetable begins again.
/// If it is set back by less, no run is repeated. cron has the same limit.
pub const FAR: SignedDuration = SignedDuration::from_hours(3);

/// The runs of a cron expression in a time zone.
pub struct Timetable {
    cron: Cron,
    zone: TimeZone,
    /// None if there is no other run.
    next: Option<Timestamp>,
    /// The time of the last call of [`Timetable::due`].
    seen: Timestamp,
}

impl Timetable {
    /// Reads an expression of five parts, or six with seconds. Without a zone, uses the machine's.
    pub fn new(cron: &str, zone: Option<&str>, now: Timestamp) -> anyhow::Result<Timetable> {
        let parser = CronParser::builder().seconds(Seconds::Optional).build();
        let cron = parser.parse(cron).map_err(|error| {
            anyhow!(
                "schedule.cron is {cron:?}: {error}; expected minute, hour, day, month, weekday"
            )
        })?;
        let zone = match zone {
            None => TimeZone::system(),
            Some(name) => TimeZone::get(name).with_context(|| {
                format!(
                    "schedule.timezone is {name:?}, which is not in /usr/share/zoneinfo (package \
                     tzdata)"
                )
            })?,
        };
        let mut timetable = Timetable {
            cron,
            zone,
            next: None,
            seen: now,
        };
        timetable.next = timetable.after(now);
        timetable.next.context("schedule.cron is never due")?;
        Ok(timetable)
    }

    /// The time of a run that is due. Runs that were missed are one.
    pub fn due(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.seen.duration_since(now) > FAR {
            self.next = self.after(now);
        }
        self.seen = now;
        let due = self.next.filter(|next| *next <= now)?;
        self.next = self.after(now);
        Some(due)
    }

    /// How long until the next run.
    pub fn wait(&self, now: Timestamp) -> Duration {
        let wait = self.next.map(|next| next.duration_since(now));
        wait.map_or(Duration::MAX, |wait| wait.try_into().unwrap_or_default())
    }

    /// A time as handlers get it: `2026-03-29T03:00:00+02:00`.
    pub fn text(&self, time: Timestamp) -> String {
        let zoned = time.to_zoned(self.zone.clone());
        zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }

    fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let zoned = time.to_zoned(self.zone.clone());
        let next = self.cron.find_next_occurrence(&zoned, false);
        next.ok().map(|next| next.timestamp())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// The runs that a clock sees which shows these times.
    fn runs(cron: &str, zone: &str, clock: impl IntoIterator<Item = Timestamp>) -> Vec<String> {
        let mut clock = clock.into_iter();
        let mut timetable = Timetable::new(cron, Some(zone), clock.next().unwrap()).unwrap();
        let due: Vec<_> = clock.filter_map(|now| timetable.due(now)).collect();
        due.iter().map(|due| timetable.text(*due)).collect()
    }

    /// A clock that is read every twenty seconds.
    fn clock(from: &str, hours: i64) -> impl Iterator<Item = Timestamp> {
        let from = at(from);
        (0..hours * 180).map(move |step| from + SignedDuration::from_secs(20 * step))
    }

    #[test]
    fn entry_runs_at_its_local_time() {
        let runs = runs(
            "30 6 * * MON-FRI",
            "America/New_York",
            clock("2026-11-26T00:00:00Z", 72),
        );
        assert_eq!(
            runs,
            ["2026-11-26T06:30:00-05:00", "2026-11-27T06:30:00-05:00"]
        );
    }

    #[test]
    fn seconds_are_optional() {
        let runs = runs("*/20 0 1 * * *", "UTC", clock("2026-11-26T00:30:00Z", 1));
        assert_eq!(runs.len(), 3, "{runs:?}");
    }

    #[test]
    fn hour_that_does_not_exist_runs_once_after_it() {
        // 02:00 becomes 03:00.
        let runs = runs(
            "30 2 * * *",
            "Europe/Berlin",
            clock("2026-03-28T23:00:00Z", 6),
        );
        assert_eq!(runs, ["2026-03-29T03:00:00+02:00"]);
    }

    #[test]
    fn hour_that_exists_twice_runs_a_daily_entry_once_and_a_frequent_one_always() {
        // 03:00 becomes 02:00.
        let night = || clock("2026-10-24T22:00:00Z", 6);
        let daily = runs("30 2 * * *", "Europe/Berlin", night());
        assert_eq!(daily, ["2026-10-25T02:30:00+02:00"]);
        let frequent = runs("*/30 * * * *", "Europe/Berlin", night());
        assert_eq!(frequent.len(), 11, "every half hour: {frequent:?}");
    }

    #[test]
    fn clock_that_is_set_back_a_little_repeats_no_run() {
        let clock = ["05:59", "06:00", "05:30", "06:00", "06:01", "07:00"];
        let clock = clock.map(|time| at(&format!("2026-11-26T{time}:00Z")));
        let runs = runs("0 * * * *", "UTC", clock);
        assert_eq!(
            runs,
            ["2026-11-26T06:00:00+00:00", "2026-11-26T07:00:00+00:00"]
        );
    }

    #[test]
    fn clock_that_was_far_ahead_stops_no_entry() {
        let clock = ["2027-11-26T05:59", "2027-11-26T06:00", "2026-11-26T05:59"];
        let clock = clock.into_iter().chain(["2026-11-26T06:00"]);
        let clock = clock.map(|time| at(&format!("{time}:00Z")));
        let runs = runs("0 * * * *", "UTC", clock);
        assert_eq!(
            runs,
            ["2027-11-26T06:00:00+00:00", "2026-11-26T06:00:00+00:00"]
        );
    }

    #[test]
    fn clock_jump_over_several_runs_makes_one_run() {
        let clock = ["05:59", "09:30", "09:31", "10:00"];
        let clock = clock.map(|time| at(&format!("2026-11-26T{time}:00Z")));
        let runs = runs("0 * * * *", "UTC", clock);
        assert_eq!(
            runs,
            ["2026-11-26T06:00:00+00:00", "2026-11-26T10:00:00+00:00"]
        );
    }

    #[test]
    fn wrong_expressions_and_zones_are_rejected() {
        let now = at("2026-11-26T00:00:00Z");
        for (cron, zone, error) in [
            ("* * *", "UTC", "schedule.cron"),
            ("61 * * * *", "UTC", "schedule.cron"),
            ("0 0 31 2 *", "UTC", "never due"),
            ("* * * * *", "Europe/Atlantis", "schedule.timezone"),
        ] {
            let refused = Timetable::new(cron, Some(zone), now).err().unwrap();
            assert!(format!("{refused:#}").contains(error), "{refused:#}");
        }
    }
}
