//! A random order of cases, repeatable by its seed.

pub struct Order {
    pub seed: u64,
    state: u64,
}

impl Order {
    pub fn new(seed: Option<u64>) -> Order {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = seed.unwrap_or_else(|| now.unwrap().as_nanos() as u64 >> 8);
        Order { seed, state: seed }
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, (self.next() % (at as u64 + 1)) as usize);
        }
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
