//! The integer step from which a rung is closed, decided exactly. A rung closes at `T·e_s = T·e_off + (T/k)·ln(a/b)`
//! with decimal `e_off` and k. If a = b the number is rational and is rounded in integers. Otherwise ln(a/b) is
//! irrational (Lindemann), so the number is never an integer, and enclosing it in ever narrower fixed-point intervals
//! must end with both ends between the same two integers. The price is this page of multiple-precision arithmetic; in
//! return no setting, however close to a step, is decided by rounding (D1).

use crate::decimal::Decimal;

/// The ratio `a / b` of two numbers from 1 to 2⁶¹.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ratio {
    pub(crate) a: u64,
    pub(crate) b: u64,
}

/// The first step t ≥ 1 with `t / T ≥ e_off + ln(a/b) / k`.
pub(crate) fn first_closed_step(
    ratio: Ratio,
    turn_off_epoch: Decimal,
    steepness: Decimal,
    steps_per_epoch: u64,
) -> u64 {
    // One limb decides nearly always.
    from_limbs(1, ratio, turn_off_epoch, steepness, steps_per_epoch)
}

fn from_limbs(
    mut limbs: usize,
    ratio: Ratio,
    turn_off_epoch: Decimal,
    steepness: Decimal,
    steps_per_epoch: u64,
) -> u64 {
    let Ratio { a, b } = ratio;
    if a == b {
        let numerator = u128::from(steps_per_epoch) * u128::from(turn_off_epoch.numerator);
        return (numerator.div_ceil(u128::from(turn_off_epoch.power())) as u64).max(1);
    }
    // T·e_s = (T·E·K ± T·10^κ·10^ε·|ln(a/b)|) / (K·10^ε) with e_off = E/10^ε and k = K/10^κ.
    loop {
        let mut offset = Natural(vec![steps_per_epoch]);
        offset.multiply(turn_off_epoch.numerator);
        offset.multiply(steepness.numerator);
        offset.shift_up(limbs);
        let (low, high) = ln_enclosure(a.max(b), a.min(b), limbs);
        let scaled = |mut it: Natural| {
            it.multiply(steps_per_epoch);
            it.multiply(steepness.power());
            it.multiply(turn_off_epoch.power());
            it
        };
        // A negative number means that the rung is closed from the first step on; 0 gives the same answer.
        let (low, high) = if a > b {
            (offset.clone().plus(&scaled(low)), offset.plus(&scaled(high)))
        } else {
            (offset.clone().minus_or_zero(&scaled(high)), offset.minus_or_zero(&scaled(low)))
        };
        let floor = |mut it: Natural| {
            it.divide(steepness.numerator);
            it.divide(turn_off_epoch.power());
            it.0.drain(..limbs.min(it.0.len()));
            it.to_u64().expect("the limits of the settings keep the step below 2^64")
        };
        let (low, high) = (floor(low), floor(high));
        if low == high {
            return low + 1;
        }
        limbs *= 2;
    }
}

/// Bounds on ln(a/b) for a > b, in units of 2^(−64·limbs).
fn ln_enclosure(a: u64, b: u64, limbs: usize) -> (Natural, Natural) {
    // a/b = 2^j · r with 1 ≤ r < 2.
    let j = (a / b).ilog2();
    let b = b << j;
    let (low, high) = twice_artanh_enclosure(a - b, a + b, limbs);
    let (mut low_of_2, mut high_of_2) = twice_artanh_enclosure(1, 3, limbs);
    low_of_2.multiply(u64::from(j));
    high_of_2.multiply(u64::from(j));
    (low.plus(&low_of_2), high.plus(&high_of_2))
}

/// Bounds on 2·artanh(p/d) = ln((d + p)/(d − p)) for 0 ≤ p/d ≤ 1/3, in units of 2^(−64·limbs).
fn twice_artanh_enclosure(p: u64, d: u64, limbs: usize) -> (Natural, Natural) {
    let mut power = Natural(vec![p]);
    power.shift_up(limbs);
    power.divide(d);
    let mut sum = Natural(Vec::new());
    let mut terms = 0_u64;
    while !power.is_zero() {
        let mut term = power.clone();
        term.divide(2 * terms + 1);
        sum = sum.plus(&term);
        power.multiply(p);
        power.divide(d);
        power.multiply(p);
        power.divide(d);
        terms += 1;
    }
    // Each power is below the true one by at most 1.5 units (e ≤ e/9 + 4/3) and each term by at most 3; the powers
    // left out add up to less than 3.
    let mut high = sum.clone().plus(&Natural(vec![3 * terms + 3]));
    sum.multiply(2);
    high.multiply(2);
    (sum, high)
}

/// A natural number, least significant limb first.
#[derive(Debug, Clone)]
struct Natural(Vec<u64>);

impl Natural {
    fn is_zero(&self) -> bool {
        self.0.iter().all(|limb| *limb == 0)
    }

    fn to_u64(&self) -> Option<u64> {
        self.0.iter().skip(1).all(|limb| *limb == 0).then(|| self.limb(0))
    }

    fn limb(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or(0)
    }

    /// Times 2^(64·limbs).
    fn shift_up(&mut self, limbs: usize) {
        self.0.splice(0..0, std::iter::repeat_n(0, limbs));
    }

    fn multiply(&mut self, factor: u64) {
        let mut carry = 0_u128;
        for limb in &mut self.0 {
            let product = u128::from(*limb) * u128::from(factor) + carry;
            *limb = product as u64;
            carry = product >> 64;
        }
        self.0.push(carry as u64);
    }

    /// Rounded down.
    fn divide(&mut self, divisor: u64) {
        let mut remainder = 0_u128;
        for limb in self.0.iter_mut().rev() {
            let dividend = (remainder << 64) | u128::from(*limb);
            *limb = (dividend / u128::from(divisor)) as u64;
            remainder = dividend % u128::from(divisor);
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn plus(mut self, other: &Self) -> Self {
        self.0.resize(self.0.len().max(other.0.len()) + 1, 0);
        let mut carry = 0;
        for (index, limb) in self.0.iter_mut().enumerate() {
            let sum = u128::from(*limb) + u128::from(other.limb(index)) + carry;
            *limb = sum as u64;
            carry = sum >> 64;
        }
        self
    }

    fn minus_or_zero(mut self, other: &Self) -> Self {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        let mut borrow = false;
        for (index, limb) in self.0.iter_mut().enumerate() {
            let (partial, first) = limb.overflowing_sub(other.limb(index));
            let (difference, second) = partial.overflowing_sub(u64::from(borrow));
            (*limb, borrow) = (difference, first || second);
        }
        if borrow { Self(Vec::new()) } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::{Natural, Ratio, first_closed_step, from_limbs, ln_enclosure};
    use num_bigint::BigUint;

    fn big(it: &Natural) -> BigUint {
        it.0.iter().rev().fold(BigUint::from(0_u8), |sum, limb| (sum << 64) + *limb)
    }

    /// ln 2, ln 3, ln 10 and ln(129/127) to 50 places, truncated (mpmath 1.3).
    #[test]
    fn logarithms_are_enclosed_tightly() {
        let cases = [
            (2, 1, "069314718055994530941723212145817656807550013436025"),
            (3, 1, "109861228866810969139524523692252570464749055782274"),
            (10, 1, "230258509299404568401799145468436420760110148862877"),
            (129, 127, "001562531790308084182064694255208034533271761877821"),
        ];
        for (a, b, digits) in cases {
            // digits · 10^−50 ≤ ln < (digits + 1) · 10^−50, in units of 2^−256.
            let digits: BigUint = digits.parse().unwrap();
            let unit = BigUint::from(10_u8).pow(50);
            let (truth_low, truth_high) =
                ((&digits << 256) / &unit, ((&digits + 1_u8) << 256) / &unit + 1_u8);
            let (low, high) = ln_enclosure(a, b, 4);
            let (low, high) = (big(&low), big(&high));
            assert!(low < high && &high - &low < BigUint::from(3000_u32), "{a}/{b}");
            assert!(
                low <= truth_high && truth_low <= high,
                "{a}/{b}: {low} {high} {truth_low} {truth_high}"
            );
        }
    }

    /// ln 3 / 10 = 0.109861228866810969…, so the rung m = 1, s = 0 meets step 1 between these two settings.
    #[test]
    fn d1_a_setting_a_trillionth_from_a_step_is_decided_right() {
        let closes = |turn_off: &str| {
            first_closed_step(Ratio { a: 3, b: 1 }, turn_off.parse().unwrap(), 10.into(), 1)
        };
        assert_eq!(closes("0.890138771133"), 1);
        assert_eq!(closes("0.890138771134"), 2);
        // And the mirrored rung, s = 1: e_1 = e_off − 0.1098….
        let closes = |turn_off: &str| {
            first_closed_step(Ratio { a: 1, b: 3 }, turn_off.parse().unwrap(), 10.into(), 1)
        };
        assert_eq!(closes("1.109861228866"), 1);
        assert_eq!(closes("1.109861228867"), 2);
        assert_eq!(closes("0.01"), 1);
    }

    /// With 10⁹ steps per epoch and k = 0.001 one limb is off by up to 10⁻⁵ steps; with a fraction of ln(q) of 10¹² below
    /// that it must refine. 20,000 settings meet some such case.
    #[test]
    fn more_limbs_never_change_a_decided_step() {
        let (turn_off, steepness) = ("0.5".parse().unwrap(), "0.001".parse().unwrap());
        let mut undecided_by_one_limb = 0;
        for a in 2..20_000 {
            let ratio = Ratio { a, b: 1 };
            let step = first_closed_step(ratio, turn_off, steepness, 1_000_000_000);
            assert_eq!(step, from_limbs(5, ratio, turn_off, steepness, 1_000_000_000), "ln {a}");
            let (low, high) = ln_enclosure(a, 1, 1);
            let steps = |it: &Natural| (big(it) * 1_000_000_000_000_u64) >> 64;
            undecided_by_one_limb += usize::from(steps(&low) != steps(&high));
        }
        assert!(undecided_by_one_limb > 0, "no setting needs a second limb");
    }

    #[test]
    fn the_largest_settings_stay_within_a_word() {
        let million = 1_000_000.into();
        let ratio = Ratio { a: 131_069, b: 1 };
        let step = first_closed_step(ratio, million, "0.001".parse().unwrap(), 1_000_000_000);
        // 10^15 + 10^12 · ln 131069.
        assert_eq!(step, 1_000_000_000_000_000 + 11_783_479_181_073 + 1);
    }
}
