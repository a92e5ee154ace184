//! Keeps the samples of a run, and merges neighbours so that a long run has no more than a short
//! one.

use super::Sample;

/// Most points of a series: the first sample, and an even number after it. At five samples per
/// second, the first 400 s have all of them.
const MOST: usize = 2001;

/// The samples of a run, at even distances.
#[derive(Debug)]
pub struct Series {
    pub(super) points: Vec<Sample>,
    /// How many samples a point after the first stands for.
    stride: u32,
    /// How many samples the last point stands for.
    in_last: u32,
}

impl Series {
    pub fn new() -> Series {
        Series {
            points: Vec::new(),
            stride: 1,
            // The first point stays alone: the others count from it.
            in_last: 1,
        }
    }

    pub fn push(&mut self, sample: Sample) {
        match self.points.last_mut() {
            Some(last) if self.in_last < self.stride => {
                *last = merged(last, &sample);
                self.in_last += 1;
            }
            _ => {
                if self.points.len() == MOST {
                    self.halve();
                }
                self.points.push(sample);
                self.in_last = 1;
            }
        }
    }

    pub fn into_points(self) -> Vec<Sample> {
        self.points
    }

    /// Merges each two points after the first.
    fn halve(&mut self) {
        let later = self.points.split_off(1);
        let pairs = later
            .chunks(2)
            .map(|pair| merged(&pair[0], &pair[pair.len() - 1]));
        self.points.extend(pairs);
        self.stride *= 2;
    }
}

/// One sample for two that follow each other. CPU time and switches are sums since the beginning,
/// of which the later ones have all; of memory and processes, the highest number counts.
fn merged(earlier: &Sample, later: &Sample) -> Sample {
    Sample {
        pss: earlier.pss.max(later.pss),
        processes: earlier.processes.max(later.processes),
        ..*later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The points of a run of this many samples. CPU time is that of the sample's number. One
    /// sample has a peak of memory and processes.
    fn points(count: u32, peak: u32) -> Vec<Sample> {
        let mut series = Series::new();
        for number in 0..count {
            series.push(Sample {
                at: f64::from(number),
                cpu: f64::from(number),
                pss: (number != 1).then_some(if number == peak { 1000 } else { 1 }),
                switches: (u64::from(number), 0),
                processes: if number == peak { 10 } else { 1 },
            });
        }
        series.into_points()
    }

    #[test]
    fn short_run_keeps_all_samples() {
        assert_eq!(points(MOST as u32, 7).len(), MOST);
        assert!(points(0, 0).is_empty());
    }

    #[test]
    fn long_run_keeps_peaks_sums_and_even_distances() {
        for count in [2002, 2003, 4001, 4002, 10_000, 100_001] {
            for peak in [0, 1, 2, count / 2, count - 2, count - 1] {
                let points = points(count, peak);
                let length = points.len();
                assert!((MOST / 2..=MOST).contains(&length), "{length} of {count}");
                let (first, last) = (points[0], points[length - 1]);
                assert_eq!((first.at, first.switches), (0.0, (0, 0)));
                let end = f64::from(count - 1);
                assert_eq!((last.at, last.cpu), (end, end));
                let pss = points.iter().filter_map(|point| point.pss).max();
                let processes = points.iter().map(|point| point.processes).max();
                let expected = if peak == 1 { 1 } else { 1000 };
                assert_eq!(
                    (pss, processes),
                    (Some(expected), Some(10)),
                    "{count}, {peak}"
                );
                assert!(points.iter().all(|point| point.cpu == point.at));
                let distance = points[1].at;
                let inner = points[..length - 1].windows(2);
                let mut distances = inner.map(|pair| pair[1].at - pair[0].at);
                assert!(distances.all(|it| it == distance), "{count}");
            }
        }
    }
}
