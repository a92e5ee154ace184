//! Creates the files that an external PHP needs to start.

use super::file_names::{CONFIGURATION, DRIVER, KEY, REPORT, ROUTER, UPLOADS, variables};
use super::runtime_dir::OwnDir;
use super::{PhpSpec, ProgramKind, builtin, cli, fpm_master};

/// Creates a directory with everything that PHP needs to start. `front` is the user of the front
/// end, if different.
pub fn furnish(spec: &PhpSpec, front: Option<u32>) -> anyhow::Result<OwnDir> {
    let runtime_dir = OwnDir::make(&spec.ini, spec.user.as_ref(), front)?;
    runtime_dir.put(REPORT, include_str!("report.php"))?;
    match spec.way {
        ProgramKind::Cgi => {}
        ProgramKind::Cli => drop(runtime_dir.put(DRIVER, &cli::driver())?),
        ProgramKind::Fpm if spec.address.is_some() => {}
        ProgramKind::Fpm => drop(runtime_dir.put(
            CONFIGURATION,
            &fpm_master::configuration(spec, &runtime_dir)?,
        )?),
        ProgramKind::RoadRunner => runtime_dir.directory_for_front(UPLOADS)?,
        ProgramKind::Builtin => {
            runtime_dir.put(ROUTER, builtin::ROUTER)?;
            runtime_dir.put_for_front(KEY)?;
            for index in 0..spec.workers {
                runtime_dir.put_for_front(&variables(index))?;
            }
        }
    }
    Ok(runtime_dir)
}
