//! Draws README's chart: requests/s of contestants as multiples of the first one's, by load. It is
//! one SVG file without scripts, in light and dark.

use std::fmt::Write;

use surus_measure::Measured;

const WIDTH: f64 = 760.0;
/// Where bars begin; labels end before it.
const LEFT: f64 = 290.0;
/// The longest bar; its value stands behind it.
const LONGEST: f64 = 320.0;
const ROW: f64 = 20.0;
const BAR: f64 = 13.0;
const HEADING: f64 = 34.0;

/// Colours of bars in the order of contestants, for a light and a dark background.
const COLOURS: [(&str, &str); 6] = [
    ("#57606a", "#9aa3ad"),
    ("#89929b", "#666e78"),
    ("#b98500", "#bb8a1e"),
    ("#0969da", "#388bfd"),
    ("#1f883d", "#3fb950"),
    ("#8250df", "#a371f7"),
];

/// The bars of one load.
pub struct Group {
    /// What was requested.
    pub title: String,
    /// Contestant, its place among all contestants of the chart, and its requests/s.
    pub bars: Vec<(String, usize, Measured)>,
}

/// Draws the groups below each other. The first contestant's bar is 1×.
pub fn draw(title: &str, groups: &[Group]) -> String {
    let largest = groups.iter().flat_map(|group| {
        let first = first(group);
        let rates = group.bars.iter();
        rates.map(move |(_, _, rate)| rate.value() / first)
    });
    let largest = largest.fold(1.0, f64::max);
    let rows: usize = groups.iter().map(|group| group.bars.len()).sum();
    let height = 16.0 + HEADING * groups.len() as f64 + ROW * rows as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n{}\
         <rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\"/>\n",
        escape(title),
        style()
    );
    let mut y = 0.0;
    for group in groups {
        y += HEADING;
        let title = escape(&group.title);
        let _ = writeln!(
            out,
            "<text class=\"heading\" x=\"16\" y=\"{}\">{title}</text>",
            y - 8.0
        );
        for (name, colour, rate) in &group.bars {
            let ratio = rate.value() / first(group);
            // A rate that the load generator has limited has no multiple.
            let multiple = baseline(group).and_then(|it| rate.multiple_of(it));
            let multiple = multiple.map_or_else(String::new, |it| format!("{}× · ", it.short()));
            let width = (ratio / largest * LONGEST).max(1.0);
            let (base, name) = (y + 11.0, escape(name));
            let (label, value) = (LEFT - 8.0, LEFT + width + 8.0);
            let _ = writeln!(
                out,
                "<text class=\"end\" x=\"{label}\" y=\"{base}\">{name}</text>\
                 <rect class=\"c{}\" x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" \
                 height=\"{BAR}\" rx=\"2\"/>\
                 <text x=\"{value:.1}\" y=\"{base}\">{multiple}{}</text>",
                colour % COLOURS.len(),
                rate.short(),
            );
            y += ROW;
        }
    }
    out.push_str("</svg>\n");
    out
}

/// What the bars of a group are compared with. If it was not measured, they have no multiples.
fn baseline(group: &Group) -> Option<&Measured> {
    let (_, place, rate) = group.bars.first()?;
    (*place == 0).then_some(rate)
}

/// The rate whose bar has the length 1.
fn first(group: &Group) -> f64 {
    group.bars.first().map_or(1.0, |(_, _, rate)| rate.value())
}

fn style() -> String {
    let mut light = String::new();
    let mut dark = String::new();
    for (index, (day, night)) in COLOURS.iter().enumerate() {
        let _ = write!(light, ".c{index}{{fill:{day}}}");
        let _ = write!(dark, ".c{index}{{fill:{night}}}");
    }
    format!(
        "<style>text{{font:13px system-ui,sans-serif;fill:#1f2328}}.heading{{font-weight:600}}\
         .end{{text-anchor:end}}.back{{fill:#fff}}{light}@media(prefers-color-scheme:dark){{\
         text{{fill:#f0f6fc}}.back{{fill:#0d1117}}{dark}}}</style>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}
