//! Recorder, rounds and report against what they must give.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use serde_json::json;
use surus_measure::interval_log::write_log;
use surus_measure::{
    Advice, BarNumbers, Bars, Cell, Chart, Line, Machine, Measured, Number, Published, Recorder,
    Report, Rounds, Row, Scale, Table, Unit,
};

#[test]
fn known_latencies_come_back_within_the_histograms_error() {
    let mut recorder = Recorder::new(false);
    for micros in 1..=100_000_u64 {
        recorder.response(Duration::ZERO, Duration::from_micros(micros), 0);
    }
    let latencies = recorder.finish(Duration::from_secs(1));
    for percent in [50.0, 90.0, 99.0, 99.9] {
        let (got, true_value) = (latencies.percentile_ms(percent), percent);
        assert!((got / true_value - 1.0).abs() < 0.002, "p{percent}: {got}");
    }
    assert!((latencies.max_ms() / 100.0 - 1.0).abs() < 0.002);
    assert_eq!(latencies.count(), 100_000);
}

#[test]
fn seconds_without_a_response_are_in_the_series() {
    let mut recorder = Recorder::new(true);
    recorder.response(Duration::from_millis(100), Duration::from_millis(5), 10);
    recorder.failure(Duration::from_millis(2500), 1);
    let latencies = recorder.finish(Duration::from_millis(3100));
    let counts: Vec<_> = latencies
        .seconds
        .iter()
        .map(|second| (second.at, second.responses, second.failures, second.bytes))
        .collect();
    assert_eq!(counts, [(0, 1, 0, 10), (1, 0, 0, 0), (2, 0, 1, 1)]);
    let has_latency: Vec<_> = latencies
        .seconds
        .iter()
        .map(|it| it.max_us.is_some())
        .collect();
    assert_eq!(has_latency, [true, false, false]);

    let mut log = Vec::new();
    write_log(&mut log, SystemTime::UNIX_EPOCH, |write| {
        latencies.intervals.iter().try_for_each(write)
    })
    .unwrap()
    .unwrap();
    let log = String::from_utf8(log).unwrap();
    let histograms = log.lines().filter(|line| line.contains("HISTF")).count();
    assert_eq!(histograms, 3, "{log}");
}

#[test]
fn interval_that_is_taken_is_kept_no_longer() {
    let mut recorder = Recorder::new(true);
    for second in 0..3 {
        recorder.response(Duration::from_secs(second), Duration::from_millis(1), 1);
        recorder.roll(Duration::from_secs(second + 1));
        assert_eq!(recorder.take_intervals().len(), 1);
    }
    recorder.response(Duration::from_secs(3), Duration::from_millis(1), 1);
    assert_eq!(recorder.finish(Duration::from_secs(3)).intervals.len(), 1);
}

proptest! {
    // Each case resamples thousands of times.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn curve_of_percentiles_never_falls(
        micros in prop::collection::vec(0_u64..10_000_000, 1..200)
    ) {
        let mut recorder = Recorder::new(false);
        for micros in &micros {
            recorder.response(Duration::ZERO, Duration::from_micros(*micros), 0);
        }
        let curve = recorder.finish(Duration::ZERO).curve();
        prop_assert!(curve.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
    }

    #[test]
    fn ratio_lies_within_its_interval(
        samples in prop::collection::vec((1.0_f64..1000.0, 1.0_f64..1000.0), 2..15)
    ) {
        let mut rounds = Rounds::new(2);
        for (a, b) in samples {
            rounds.push(0, a);
            rounds.push(1, b);
        }
        let ratio = rounds.ratio(0, 1).unwrap();
        prop_assert!(ratio.low <= ratio.high);
        prop_assert!(ratio.low <= ratio.value * 1.000_001);
        prop_assert!(ratio.value <= ratio.high * 1.000_001);
    }
}

#[test]
fn contestants_have_each_place_equally_often() {
    let order = |round| Rounds::order(3, round).collect::<Vec<_>>();
    assert_eq!(
        [order(0), order(1), order(2)],
        [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
    );
}

#[test]
fn ratio_of_equal_contestants_shows_no_difference() {
    let (mut equal, mut double) = (Rounds::new(2), Rounds::new(2));
    for round in 0..10 {
        let noise = f64::from(round % 5);
        equal.push(0, 100.0 + noise);
        equal.push(1, 104.0 - noise);
        double.push(0, 200.0 + noise);
        double.push(1, 100.0 + noise);
    }
    assert!(!equal.ratio(0, 1).unwrap().shows_difference());
    let ratio = double.ratio(0, 1).unwrap();
    assert!(
        ratio.shows_difference() && (ratio.value - 2.0).abs() < 0.05,
        "{ratio:?}"
    );
    assert!(Rounds::new(2).ratio(0, 1).is_none(), "without rounds");
}

#[test]
fn ratio_of_a_column_has_two_decimals_and_no_unit() {
    let mut rounds = Rounds::new(2);
    for _ in 0..6 {
        rounds.push(0, 1.0);
        rounds.push(1, 2.0);
    }
    let ratio = Measured::ratio(rounds.ratio(0, 1).unwrap());
    assert_eq!(ratio.in_two_decimals(), "0.50 (0.50 to 0.50)");
    let single = Measured::once(2.0, Unit::Times);
    assert_eq!(single.in_two_decimals(), "2.00");
}

#[test]
fn intervals_of_few_rounds_have_a_caveat() {
    let caveat = surus_measure::rounds::caveat;
    assert_eq!((caveat(1), caveat(10)), (None, None));
    assert!(caveat(6).unwrap().contains("of 6 rounds"));
}

#[test]
fn unanswered_requests_count_in_percentiles_and_log() {
    let mut recorder = Recorder::new(true);
    recorder.response(Duration::ZERO, Duration::from_millis(1), 0);
    recorder.unanswered(Duration::from_millis(500), 3);
    let latencies = recorder.finish(Duration::from_secs(1));
    assert_eq!(latencies.count(), 4);
    assert!(latencies.percentile_ms(50.0) >= 500.0);
    assert_eq!(latencies.count_above(Duration::from_millis(1)), 3);
    assert_eq!(latencies.count_above(Duration::from_micros(999)), 4);
    assert_eq!(latencies.count_above(Duration::from_millis(500)), 0);
    assert_eq!(latencies.seconds[0].responses, 1);
    let mut log = Vec::new();
    write_log(&mut log, SystemTime::now(), |write| {
        latencies.intervals.iter().try_for_each(write)
    })
    .unwrap()
    .unwrap();
    let log = String::from_utf8(log).unwrap();
    assert!(
        log.contains(",1.000,500."),
        "the highest of the interval: {log}"
    );
}

fn report() -> Report {
    let published = Published {
        value: 12.0,
        up_to: None,
        is_estimate: false,
        unit: Unit::Ms,
        source: "a talk".into(),
        date: "2019".into(),
        hardware: "unknown".into(),
        not_comparable: String::new(),
    };
    Report {
        title: "a <b> & c".into(),
        subtitle: "load".into(),
        machine: Machine::this(),
        failure: Some("nothing <came>".into()),
        notes: vec!["a note".into()],
        tables: vec![
            Table {
                key: "one".into(),
                title: "One".into(),
                columns: vec![String::new()],
                rows: vec![Row::once(
                    "rate",
                    "requests/s",
                    1_234_567.0,
                    Unit::PerSecond,
                )],
            },
            Table {
                key: "two".into(),
                title: "Two".into(),
                columns: vec!["measured".into(), "published".into()],
                rows: vec![Row::new(
                    "p99",
                    "p99",
                    vec![
                        Cell::measured(Measured::once(3.456, Unit::Ms)),
                        Cell::published(published.clone()),
                    ],
                )],
            },
        ],
        charts: vec![Chart {
            title: "Latency".into(),
            x: "percentile".into(),
            scale: Scale::Nines,
            y: Unit::Ms,
            y_scale: Scale::Linear,
            lines: vec![Line {
                name: "</script>".into(),
                points: vec![(0.0, 1.0), (0.99, 5.0)],
            }],
        }],
        bars: vec![Bars {
            title: "Requests <per> second".into(),
            numbers: BarNumbers::Published(vec![("they & we".into(), published.clone())]),
        }],
        advice: Some(Advice {
            title: "Do <this>".into(),
            reasons: vec!["It is faster.".into()],
            file: "surus.toml:".into(),
            lines: vec!["[engine]".into(), "name = \"rewind\"".into()],
        }),
    }
}

#[test]
fn json_report_names_the_source_of_each_number() {
    let json = report().json();
    assert_eq!(
        json["one"]["rate"],
        json!({"kind": "measured", "value": 1_234_567.0, "unit": "per_second"})
    );
    assert_eq!(json["two"]["p99"]["measured"]["kind"], "measured");
    assert_eq!(json["two"]["p99"]["published"]["source"], "a talk");
    assert_eq!(json["advice"]["lines"][0], "[engine]");
}

#[test]
fn report_as_text_and_markdown_has_numbers_with_units() {
    let text = report().text();
    assert!(
        text.contains("1,234,567/s") && text.contains("3.46 ms"),
        "{text}"
    );
    assert!(text.contains("12.0 ms [a talk]"), "{text}");
    let advice = "\nDo <this>\n  - It is faster.\n\nsurus.toml:\n\n  [engine]\n";
    assert!(text.contains(advice), "{text}");
    let markdown = report().markdown();
    assert!(markdown.contains("```toml\n[engine]\n"), "{markdown}");
    assert!(
        markdown.contains("| p99 | 3.46 ms | 12.0 ms [a talk] |"),
        "{markdown}"
    );
}

#[test]
fn published_range_and_estimate_are_printed_as_such() {
    let Cell::Number(Number::Published(published)) = &report().tables[1].rows[0].cells[1] else {
        panic!("no published number");
    };
    let estimate = Published {
        up_to: Some(24.0),
        is_estimate: true,
        ..published.clone()
    };
    let text = Number::Published(estimate.clone()).to_string();
    assert_eq!(text, "estimated 12.0 ms to 24.0 ms [a talk]");
    let mut report = report();
    let bars = vec![("they".into(), estimate), ("we".into(), published.clone())];
    report.bars[0].numbers = BarNumbers::Published(bars);
    let page = report.html(&json!({}));
    let label = ">estimated 12.0 ms to 24.0 ms</text>";
    assert!(page.contains(label), "{page}");
    let range = "class=\"bar published range\" x=\"1\" y=\"19\" width=\"418.0\"";
    assert!(
        page.contains(range),
        "the bar ends at the upper end: {page}"
    );
    let low = "class=\"bar published\" x=\"1\" y=\"19\" width=\"209.0\"";
    assert!(page.contains(low), "{page}");
}

#[test]
fn code_in_notes_is_code_on_the_page() {
    let mut report = report();
    report.notes = vec!["run `make <lab>`; a lone ` stays".into()];
    let page = report.html(&json!({}));
    let note = "run <code>make &lt;lab&gt;</code>; a lone ` stays</p>";
    assert!(page.contains(note), "{page}");
    assert!(report.markdown().contains("run `make"), "{page}");
    report.tables[0].rows[0].cells[0] = Cell::Text {
        text: "`<dd>` instead of `<dt>`".into(),
    };
    let page = report.html(&json!({}));
    let cell = "<td class=\"text\"><code>&lt;dd&gt;</code> instead of <code>&lt;dt&gt;</code></td>";
    assert!(page.contains(cell), "{page}");
}

#[test]
fn text_of_others_is_no_markup_in_markdown() {
    let mut report = report();
    // The body of a server, in the backticks of the message.
    for (text, expected) in [
        ("with `<b>`", "with `<b>`"),
        (
            "with `a` ![x](http://a/) `b`",
            "with `a` !\\[x](http://a/) `b`",
        ),
        (
            "with ``[x](//a) <b> ` c`",
            "with \\`\\`\\[x](//a) &lt;b> ` c`",
        ),
        (
            "a lone ` and [x]: http://a/",
            "a lone \\` and \\[x]: http://a/",
        ),
        ("`a|b`", "\\`a\\|b\\`"),
        (
            "**a** ~~b~~ _c_ &amp; &#60; \\",
            "\\*\\*a\\*\\* \\~\\~b\\~\\~ \\_c\\_ &amp;amp; &amp;#60; \\\\",
        ),
        ("one\n# two", "one # two"),
        // Text that no one could take for markup stays as it is.
        (
            "Surus\\Api, memory_limit & 12.0 ms [a talk]!",
            "Surus\\Api, memory_limit & 12.0 ms [a talk]!",
        ),
    ] {
        report.failure = Some(text.into());
        let markdown = report.markdown();
        let line = format!("> **Failed:** {expected}\n");
        assert!(markdown.contains(&line), "{text}: {markdown}");
    }
}

#[test]
fn failure_is_on_the_page_in_json_and_in_markdown() {
    let page = report().html(&json!({}));
    let html = "role=\"alert\"><b>Failed:</b> nothing &lt;came&gt;</p>";
    assert!(page.contains(html), "{page}");
    assert_eq!(report().json()["failure"], "nothing <came>");
    let markdown = report().markdown();
    assert!(
        markdown.contains("> **Failed:** nothing &lt;came>"),
        "{markdown}"
    );
    let fine = Report {
        failure: None,
        ..report()
    };
    assert!(!fine.html(&json!({})).contains("alert"));
    assert!(fine.json().get("failure").is_none());
}

#[test]
fn axis_of_powers_of_ten_keeps_small_values_apart() {
    let mut report = report();
    report.charts[0].y_scale = Scale::Tens;
    report.charts[0].lines[0].points = vec![(0.0, 2.0), (0.5, 20.0), (0.9, 2000.0)];
    let page = report.html(&json!({}));
    for label in [
        ">1.00 ms<",
        ">10.0 ms<",
        ">100 ms<",
        ">1,000 ms<",
        ">10.0 s<",
    ] {
        assert!(page.contains(label), "no {label} in {page}");
    }
    // From 1 ms to 10 s are four steps of 47.5 pixels, from 200 up.
    let height = |value: f64| 200.0 - value.log10() * 47.5;
    let first = format!("M68.0 {:.1}L", height(2.0));
    let last = format!(" {:.1}\"", height(2000.0));
    assert!(page.contains(&first) && page.contains(&last), "{page}");
}

#[test]
fn axis_of_rounds_has_labels_at_whole_numbers_only() {
    let mut report = report();
    report.charts[0].scale = Scale::Whole;
    report.charts[0].lines[0].points = vec![(1.0, 1.0), (2.0, 5.0)];
    let page = report.html(&json!({}));
    assert!(!page.contains(">0.5<") && page.contains(">1<") && page.contains(">2<"));
}

#[test]
fn point_without_a_value_is_a_gap_of_the_line() {
    let mut report = report();
    let chart = &mut report.charts[0];
    chart.scale = Scale::Linear;
    chart.lines[0].points = vec![(0.5, 1.0), (1.5, f64::NAN), (2.5, 2.0), (3.5, 1.0)];
    assert!(!chart.is_empty());
    let page = report.html(&report.json());
    let path = page.split("class=\"line l0\" d=\"").nth(1).unwrap();
    let path = path.split('"').next().unwrap();
    assert!(!path.contains("NaN"), "{path}");
    assert_eq!(path.matches('M').count(), 2, "{path}");
    assert_eq!(path.matches('L').count(), 1, "{path}");
    assert_eq!(path.matches("h0.1").count(), 1, "{path}");
    let chart = &mut report.charts[0];
    chart.lines[0].points = vec![(0.5, f64::NAN)];
    assert!(chart.is_empty());
}

#[test]
fn cells_have_the_names_of_their_columns_for_narrow_screens() {
    let page = report().html(&json!({}));
    assert!(page.contains("<table class=\"wide\">"), "{page}");
    assert!(
        page.contains("<td data-column=\"measured\">3.46 ms</td>"),
        "{page}"
    );
    assert!(
        page.contains("<td>1,234,567/s</td>"),
        "a single column has no name: {page}"
    );
}

#[test]
fn bar_chart_says_whose_numbers_it_shows() {
    let page = report().html(&json!({}));
    let caption =
        "Requests &lt;per&gt; second<span class=\"legend\">published by others: a talk</span>";
    assert!(page.contains(caption), "{page}");
    assert!(page.contains("they &amp; we") && page.contains("class=\"bar published\""));
}

#[test]
fn page_is_self_contained_and_escapes_text() {
    let page = report().html(&json!({"name": "</script>"}));
    assert!(page.contains("a &lt;b&gt; &amp; c"));
    assert!(page.contains("<h2>Do &lt;this&gt;</h2>") && page.contains("<pre>[engine]\n"));
    assert_eq!(
        page.matches("</script>").count(),
        1,
        "the data must not end its element"
    );
    for external in ["src=", "href=", "@import", "url("] {
        assert!(!page.contains(external), "{external}");
    }
}

#[test]
fn heads_of_a_table_that_is_wider_than_a_terminal_have_several_lines() {
    let heads = ["requests/s", "CPU per request"];
    let text = |columns: &[&str]| {
        let cell = |_: &&str| Cell::Text {
            text: "same".into(),
        };
        let table = Table {
            key: "table".into(),
            title: "Table".into(),
            columns: columns.iter().copied().map(String::from).collect(),
            rows: vec![Row::new("row", "row", columns.iter().map(cell).collect())],
        };
        let tables = vec![table];
        Report { tables, ..report() }.text()
    };
    let narrow = text(&heads);
    let line = "       requests/s  CPU per request\n";
    assert!(narrow.contains(line), "{narrow}");
    let wide = text(&[heads, heads, heads].concat());
    let heads = "                   CPU per              CPU per              CPU per\n       \
                 requests/s  request  requests/s  request  requests/s  request\n  row  ";
    assert!(wide.contains(heads), "{wide}");
}
