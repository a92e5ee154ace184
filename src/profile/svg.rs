//! The timeline as an SVG image.

use std::fmt::Write as _;

use super::{Timeline, millis};

const WIDTH: f64 = 1000.0;
/// Where the bars begin, to the right of the names.
const LEFT: f64 = 360.0;
const ROW: f64 = 24.0;
const TOP: f64 = 56.0;

/// Draws a self-contained SVG file with tooltips.
pub fn draw(timeline: &Timeline) -> String {
    let end = timeline
        .phases
        .iter()
        .map(|phase| phase.end)
        .max()
        .unwrap_or(1)
        .max(1) as f64;
    let x = |micros: u64| LEFT + (WIDTH - LEFT - 90.0) * (micros as f64 / end);
    let height = TOP + ROW * (timeline.phases.len() as f64 + 3.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"16\" y=\"28\" font-size=\"17\">{}</text>\n",
        escaped(&format!(
            "{}: {} until ready, {} for the first event",
            timeline.title,
            millis(timeline.ready),
            millis(timeline.first)
        ))
    );
    for (index, phase) in timeline.phases.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let (from, to) = (x(phase.start), x(phase.end));
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{from:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" \
             fill=\"#4a6fa5\"><title>from {}</title></rect>\n\
             <text x=\"{:.1}\" y=\"{}\">{}</text>",
            LEFT - 10.0,
            y + 16.0,
            escaped(&phase.name),
            y + 3.0,
            (to - from).max(1.0),
            ROW - 6.0,
            millis(phase.start),
            to.max(from + 1.0) + 6.0,
            y + 16.0,
            millis(phase.end - phase.start),
        );
    }
    let y = TOP + ROW * (timeline.phases.len() as f64 + 0.5);
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">PHP files: compiled, or from OPcache</text>",
        LEFT - 10.0,
        y + 16.0
    );
    for file in &timeline.files {
        let (from, to) = (x(file.start), x(file.end));
        let colour = if file.is_compiled {
            "#c8553d"
        } else {
            "#588157"
        };
        let _ = writeln!(
            svg,
            "<rect x=\"{from:.2}\" y=\"{}\" width=\"{:.2}\" height=\"{}\" \
             fill=\"{colour}\"><title>{} {}</title></rect>",
            y + 3.0,
            (to - from).max(0.5),
            ROW - 6.0,
            escaped(&file.path),
            millis(file.end.saturating_sub(file.start)),
        );
    }
    let compiled = timeline
        .files
        .iter()
        .filter(|file| file.is_compiled)
        .count();
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\" fill=\"#c8553d\">{compiled} compiled</text>\n\
         <text x=\"{}\" y=\"{}\" fill=\"#588157\">{} from OPcache</text>\n</svg>",
        y + ROW + 16.0,
        LEFT + 120.0,
        y + ROW + 16.0,
        timeline.files.len() - compiled,
    );
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::tests::timeline;
    use super::*;

    #[test]
    fn svg_has_every_phase_and_file() {
        let svg = draw(&timeline());
        assert_eq!(svg.matches("<rect").count(), 1 + 9 + 6, "{svg}");
        assert!(svg.contains("src/&lt;Odd &amp; Co&gt;.php"), "{svg}");
        assert!(svg.trim_end().ends_with("</svg>"));
        let opened = svg.matches("<text").count();
        assert_eq!(opened, svg.matches("</text>").count());
    }
}
