//! Rules about the deployed code: the zip, its architecture, its handler, and layers.

use super::finding::{Finding, certain, perhaps};
use super::run_settings::{Code, EventHandler, RunSettings};
use super::stack::{Located, StackFunction};

/// Adds findings to `found`.
pub fn find(function: &StackFunction, runs: &RunSettings, found: &mut Vec<Finding>) {
    let name = &function.name;
    match (&runs.code, &function.code) {
        (
            Code::Directory {
                has_bootstrap: false,
            },
            Some(code),
        ) => certain(
            found,
            code.line,
            format!(
                "the code of {name} is the directory {}, which has no bootstrap, so Lambda cannot \
                 start it; run `surus lambda package` and write CodeUri: function.zip",
                code.value
            ),
        ),
        (
            Code::Zip {
                exists,
                architecture: Some(architecture),
            },
            _,
        ) => check_architecture(function, *exists, architecture, found),
        _ => {}
    }
    if let (EventHandler::Missing, Some(handler)) = (runs.handler, &function.handler) {
        certain(
            found,
            handler.line,
            format!(
                "the handler of {name} is {}, which the package does not contain, so events that \
                 are not HTTP would fail (Runtime.HandlerNotFound); write the PHP file's path \
                 relative to the project, or Handler: bootstrap if there are no such events",
                handler.value
            ),
        );
    }
    for layer in function.layers.iter().filter(|layer| is_of_bref(layer)) {
        perhaps(
            found,
            layer.line,
            format!(
                "{name} uses Bref's layer {}, but Surus brings its own PHP: the layer is unused \
                 and counts towards the 250 MB limit of code and layers; remove it from Layers, \
                 and name its extensions in [package] extensions",
                layer.value
            ),
        );
    }
}

fn check_architecture(
    function: &StackFunction,
    exists: bool,
    architecture: &str,
    found: &mut Vec<Finding>,
) {
    let name = &function.name;
    let Some(wanted) = function
        .architecture
        .as_ref()
        .filter(|wanted| wanted.value != architecture)
    else {
        return;
    };
    let remedy = format!(
        "write Architectures: [{architecture}], or run `surus lambda package` on a machine with {}",
        wanted.value
    );
    match exists {
        true => certain(
            found,
            wanted.line,
            format!(
                "{name} has Architectures: [{}], but the bootstrap of its zip is for \
                 {architecture} and would not start (Runtime.InvalidEntrypoint); {remedy}",
                wanted.value
            ),
        ),
        false => perhaps(
            found,
            wanted.line,
            format!(
                "{name} has Architectures: [{}], but `surus lambda package` on this machine makes \
                 zips for {architecture}; {remedy}",
                wanted.value
            ),
        ),
    }
}

/// Bref's layers with PHP: `arn:aws:lambda:eu-west-1:873528684822:layer:arm-php-84-fpm:1`, or
/// `${bref:layer.php-84}`.
fn is_of_bref(layer: &Located<String>) -> bool {
    let layer = layer.value.to_ascii_lowercase();
    let after = layer.split_once("layer:").map_or("", |(_, name)| name);
    let name = after.strip_prefix("arm-").unwrap_or(after);
    layer.contains("bref") || name.starts_with("php-") || name.starts_with("console:")
}
