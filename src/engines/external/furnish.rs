//! Creates the files that an external PHP needs to start.

use super::file_names::{CONFIGURATION, DRIVER, KEY, REPORT, ROUTER, UPLOADS, variables};
use super::runtime_dir::OwnDir;
use super::{PhpSpec, ProgramKind, builtin, cli, fpm_master};

/// Creates a directory with everything that PHP needs to start. `front` is the user of the front
/// end, if different.
pub fn furnish(spec: &PhpSpec, front: Option<u32>) -> anyhow::Result<OwnDir> {
    let home = OwnDir::make(&spec.ini, spec.user.as_ref(), front)?;
    home.put(REPORT, include_str!("report.php"))?;
    match spec.way {
        ProgramKind::Cgi => {}
        ProgramKind::Cli => drop(home.put(DRIVER, cli::DRIVER)?),
        ProgramKind::Fpm if spec.address.is_some() => {}
        ProgramKind::Fpm => {
            drop(home.put(CONFIGURATION, &fpm_master::configuration(spec, &home)?)?)
        }
        ProgramKind::RoadRunner => home.directory_for_front(UPLOADS)?,
        ProgramKind::Builtin => {
            home.put(ROUTER, builtin::ROUTER)?;
            home.put_for_front(KEY)?;
            for index in 0..spec.workers {
                home.put_for_front(&variables(index))?;
            }
        }
    }
    Ok(home)
}
