//! Random numbers: quick, and the same everywhere for the same seed.

/// Marsaglia's xorshift: three shifts an access, so that memory is the cost and not the numbers.
#[derive(Clone, Debug)]
pub struct XorShift(u64);

impl XorShift {
    /// A generator; nearby seeds give unrelated sequences.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed).max(1))
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`, by multiplication instead of division.
    #[inline]
    pub fn below(&mut self, limit: u32) -> u32 {
        scale(self.next_bits() >> 32, limit, 32)
    }
}

/// Maps `bits` random bits to `0..limit`.
#[inline]
pub fn scale(random: u64, limit: u32, bits: u32) -> u32 {
    ((random * u64::from(limit)) >> bits) as u32
}

/// Spreads a number over 64 bits (the splitmix64 finisher).
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_stay_below_the_limit_and_fill_it() {
        let mut random = XorShift::new(1);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[random.below(10) as usize] = true;
        }
        assert!(seen.iter().all(|seen| *seen));
    }
}
