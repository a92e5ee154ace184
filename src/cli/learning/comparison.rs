//! Compares the answers of the serving boot with those of one that learned pages have warmed up.

use super::probes::{Fault, Probes};
use crate::cli::boot_proof;
use crate::engine::{Engine, Prepared};
use crate::observe::status::LeftOutReason;

/// Why a boot with pages does not serve.
#[derive(Clone)]
pub enum Rejected {
    /// Because of the pages.
    Pages(LeftOutReason, String),
    /// This page fails for now, without a page: all do.
    Temporary(Option<String>, String),
    /// The application boots for another reason.
    Interrupted,
}

impl From<Fault> for Rejected {
    fn from(fault: Fault) -> Rejected {
        match fault {
            Fault::Lasting(why) => failed_boot(why),
            Fault::Temporary(page, why) => Rejected::Temporary(page, why),
        }
    }
}

pub fn failed_boot(why: String) -> Rejected {
    Rejected::Pages(LeftOutReason::Failed, why)
}

/// Fails if an answer changes.
pub async fn compare(
    serving: &dyn Engine,
    prepared: &Prepared,
    probes: &Probes<'_>,
) -> Result<(), Rejected> {
    let ask = |event| serving.handle(event);
    let before = probes.answers(ask).await?;
    probes.check(&before)?;
    let warm = probes.answers(|event| prepared.handle(event)).await?;
    // A time in seconds differs by then.
    tokio::time::sleep(boot_proof::SECOND).await;
    let after = probes.answers(ask).await?;
    probes.check(&after)?;
    let plain = boot_proof::plain_answers(&before, &after);
    let differences = boot_proof::differences(&plain, &warm);
    let mut found = (probes.all().zip(&warm).zip(differences))
        .filter_map(|((probe, answers), difference)| Some((probe, answers, difference?)));
    let Some(((probe, other), answers, (expected, got))) = found.next() else {
        return Ok(());
    };
    let visitor = if other {
        ", asked by another visitor,"
    } else {
        ""
    };
    let why = format!("{probe}{visitor} answers `{got}` instead of `{expected}`");
    // An outage may have ended since.
    let is_temporary = Probes::has_failed(answers)
        && !Probes::has_failed(
            &probes
                .answer(probe, other, |event| prepared.handle(event))
                .await?,
        );
    Err(match is_temporary {
        true => Rejected::Temporary(None, why),
        false => Rejected::Pages(LeftOutReason::Changed, why),
    })
}
