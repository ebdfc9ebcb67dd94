//! Exact rationals with a digit bound.
//!
//! Almost every number in an answer fits two machine words, so those take a path without allocation; the rest fall
//! back to big integers. Every operation that could grow checks [`MAX_BITS`] first and returns `None` beyond it: the
//! caller then compares in another way or gives up. Nothing here allocates in proportion to a number's *value*.

use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::cmp::Ordering;

/// Largest numerator or denominator that is ever computed, in bits (about 19,700 decimal digits).
pub(crate) const MAX_BITS: u64 = 65_536;

/// Longest number literal that is read, in digits. A longer one is compared as text.
pub(crate) const MAX_LITERAL_DIGITS: usize = 8_192;

/// A rational number in lowest terms with a positive denominator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rat {
    /// Both parts fit a word; the denominator is positive.
    Small(i64, i64),
    /// At least one part does not.
    Big(Box<(BigInt, BigInt)>),
}

impl Rat {
    pub(crate) const ZERO: Rat = Rat::Small(0, 1);
    pub(crate) const ONE: Rat = Rat::Small(1, 1);
    pub(crate) const MINUS_ONE: Rat = Rat::Small(-1, 1);

    pub(crate) fn int(n: i64) -> Rat {
        Rat::Small(n, 1)
    }

    /// `n / d`, or `None` if `d` is zero.
    pub(crate) fn new(n: i128, d: i128) -> Option<Rat> {
        if d == 0 {
            return None;
        }
        let g = gcd(n.unsigned_abs(), d.unsigned_abs());
        let (g, sign) = (i128::try_from(g).ok()?, if d < 0 { -1 } else { 1 });
        let (n, d) = (n / g * sign, (d / g).abs());
        if let (Ok(n), Ok(d)) = (i64::try_from(n), i64::try_from(d)) {
            return Some(Rat::Small(n, d));
        }
        Some(Rat::Big(Box::new((n.into(), d.into()))))
    }

    /// Parts without a common factor, the denominator positive.
    fn coprime(n: BigInt, d: BigInt) -> Rat {
        if let (Some(n), Some(d)) = (n.to_i64(), d.to_i64()) {
            return Rat::Small(n, d);
        }
        Rat::Big(Box::new((n, d)))
    }

    /// `n / d`, reduced; `None` for a zero denominator and beyond [`MAX_BITS`].
    pub(crate) fn from_big(n: BigInt, d: BigInt) -> Option<Rat> {
        if d.is_zero() || n.bits() > 2 * MAX_BITS || d.bits() > 2 * MAX_BITS {
            return None;
        }
        let (mut n, mut d) = if d.is_one() {
            (n, d)
        } else {
            let g = n.gcd(&d);
            if g.is_one() { (n, d) } else { (n / &g, d / &g) }
        };
        if d.sign() == Sign::Minus {
            n = -n;
            d = -d;
        }
        if n.bits() > MAX_BITS || d.bits() > MAX_BITS {
            return None;
        }
        Some(Rat::coprime(n, d))
    }

    /// Numerator and denominator.
    pub(crate) fn parts(&self) -> (BigInt, BigInt) {
        match self {
            Rat::Small(n, d) => ((*n).into(), (*d).into()),
            Rat::Big(b) => (b.0.clone(), b.1.clone()),
        }
    }

    /// Reads `digits[.digits]`; underscores, signs and exponents are the caller's business.
    pub(crate) fn parse_decimal(text: &str) -> Option<Rat> {
        let (whole, frac) = text.split_once('.').unwrap_or((text, ""));
        let n_digits = whole.len() + frac.len();
        if n_digits == 0 || n_digits > MAX_LITERAL_DIGITS {
            return None;
        }
        let frac = frac.trim_end_matches('0');
        if !whole.bytes().chain(frac.bytes()).all(|b| b.is_ascii_digit()) {
            return None;
        }
        if whole.len() + frac.len() <= 18 {
            let fold = |acc: i64, b: u8| acc * 10 + i64::from(b - b'0');
            let n = whole.bytes().chain(frac.bytes()).fold(0, fold);
            if frac.is_empty() {
                return Some(Rat::Small(n, 1));
            }
            return Rat::new(n.into(), i128::from(10_i64.pow(frac.len() as u32)));
        }
        let n = BigInt::parse_bytes(format!("{whole}{frac}").as_bytes(), 10)?;
        let d = BigInt::from(10).pow(frac.len() as u32);
        Rat::from_big(n, d)
    }

    pub(crate) fn from_f64(value: f64) -> Option<Rat> {
        if !value.is_finite() {
            return None;
        }
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as i64;
        let fraction = (bits & ((1 << 52) - 1)) as i64;
        let mantissa = if exponent == 0 { fraction } else { fraction | 1 << 52 };
        let scale = Rat::int(2).pow(exponent.max(1) - 1_075)?;
        let magnitude = Rat::int(mantissa).mul(&scale)?;
        Some(if value < 0.0 { magnitude.neg() } else { magnitude })
    }

    pub(crate) fn ten_pow(exponent: i64) -> Option<Rat> {
        Rat::int(10).pow(exponent)
    }

    pub(crate) fn add(&self, other: &Rat) -> Option<Rat> {
        if let (Rat::Small(a, b), Rat::Small(c, d)) = (self, other) {
            if *b == 1 && *d == 1 {
                return Rat::new(i128::from(*a) + i128::from(*c), 1);
            }
            let (a, b, c, d) = (i128::from(*a), i128::from(*b), i128::from(*c), i128::from(*d));
            if let (Some(x), Some(y)) = (a.checked_mul(d), c.checked_mul(b))
                && let Some(n) = x.checked_add(y)
            {
                return Rat::new(n, b * d);
            }
        }
        let ((a, b), (c, d)) = (self.parts(), other.parts());
        if b == d {
            return Rat::from_big(a + c, b);
        }
        Rat::from_big(a * &d + c * &b, b * d)
    }

    pub(crate) fn neg(&self) -> Rat {
        match self {
            Rat::Small(n, d) if *n != i64::MIN => Rat::Small(-n, *d),
            _ => {
                let (n, d) = self.parts();
                Rat::Big(Box::new((-n, d)))
            }
        }
    }

    pub(crate) fn sub(&self, other: &Rat) -> Option<Rat> {
        self.add(&other.neg())
    }

    pub(crate) fn mul(&self, other: &Rat) -> Option<Rat> {
        if let (Rat::Small(a, b), Rat::Small(c, d)) = (self, other) {
            return Rat::new(i128::from(*a) * i128::from(*c), i128::from(*b) * i128::from(*d));
        }
        let ((a, b), (c, d)) = (self.parts(), other.parts());
        Rat::from_big(a * c, b * d)
    }

    pub(crate) fn recip(&self) -> Option<Rat> {
        match self {
            Rat::Small(n, d) => Rat::new((*d).into(), (*n).into()),
            Rat::Big(b) => {
                // Still in lowest terms.
                let (n, d) = (b.1.clone(), b.0.clone());
                if d.is_zero() {
                    return None;
                }
                Some(Rat::coprime(if d.is_negative() { -n } else { n }, d.abs()))
            }
        }
    }

    pub(crate) fn div(&self, other: &Rat) -> Option<Rat> {
        self.mul(&other.recip()?)
    }

    /// Integer power; `None` when the result would pass [`MAX_BITS`], and for a negative power of zero.
    pub(crate) fn pow(&self, exponent: i64) -> Option<Rat> {
        if exponent == 0 || self.is_one() {
            return Some(Rat::ONE);
        }
        if self.is_zero() {
            return (exponent > 0).then_some(Rat::ZERO);
        }
        if *self == Rat::MINUS_ONE {
            return Some(if exponent % 2 == 0 { Rat::ONE } else { Rat::MINUS_ONE });
        }
        let size = exponent.unsigned_abs();
        if size.checked_mul(self.bits().saturating_sub(1).max(1))? > MAX_BITS {
            return None;
        }
        let size = u32::try_from(size).ok()?;
        let power = if let Rat::Small(n, d) = self
            && let (Some(n), Some(d)) = (n.checked_pow(size), d.checked_pow(size))
        {
            Rat::Small(n, d)
        } else {
            let (n, d) = self.parts();
            Rat::coprime(n.pow(size), d.pow(size))
        };
        if exponent < 0 { power.recip() } else { Some(power) }
    }

    /// Bits of the larger part.
    pub(crate) fn bits(&self) -> u64 {
        match self {
            Rat::Small(n, d) => u64::from(
                64 - n.unsigned_abs().leading_zeros().min(d.unsigned_abs().leading_zeros()),
            ),
            Rat::Big(b) => b.0.bits().max(b.1.bits()),
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        matches!(self, Rat::Small(0, _))
    }

    pub(crate) fn is_one(&self) -> bool {
        matches!(self, Rat::Small(1, 1))
    }

    pub(crate) fn is_negative(&self) -> bool {
        match self {
            Rat::Small(n, _) => *n < 0,
            Rat::Big(b) => b.0.is_negative(),
        }
    }

    pub(crate) fn is_integer(&self) -> bool {
        match self {
            Rat::Small(_, d) => *d == 1,
            Rat::Big(b) => b.1.is_one(),
        }
    }

    /// The value, if it is an integer of one word.
    pub(crate) fn to_i64(&self) -> Option<i64> {
        match self {
            Rat::Small(n, 1) => Some(*n),
            _ => None,
        }
    }

    pub(crate) fn floor(&self) -> Rat {
        match self {
            Rat::Small(n, d) => Rat::Small(n.div_euclid(*d), 1),
            Rat::Big(b) => Rat::from_big(b.0.div_floor(&b.1), BigInt::one()).unwrap_or(Rat::ZERO),
        }
    }

    /// The nearest double (0, ±∞ when out of range).
    pub(crate) fn to_f64(&self) -> f64 {
        match self {
            // Each conversion and the division round once; within 2^53 the result is the nearest double.
            Rat::Small(n, d) if n.unsigned_abs() < 1 << 53 && *d < 1 << 53 => *n as f64 / *d as f64,
            _ => {
                let (n, d) = self.parts();
                big_ratio_to_f64(&n, &d)
            }
        }
    }

    /// `self * 10^places`, rounded half to even, as an integer.
    pub(crate) fn round_scaled(&self, places: u32) -> BigInt {
        let (n, d) = self.parts();
        let n = n * BigInt::from(10).pow(places);
        let (quotient, rest) = n.div_mod_floor(&d);
        match (rest * 2_u8).cmp(&d) {
            Ordering::Less => quotient,
            Ordering::Equal if quotient.is_even() => quotient,
            Ordering::Greater | Ordering::Equal => quotient + 1,
        }
    }
}

impl PartialOrd for Rat {
    fn partial_cmp(&self, other: &Rat) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rat {
    fn cmp(&self, other: &Rat) -> Ordering {
        if let (Rat::Small(a, b), Rat::Small(c, d)) = (self, other) {
            return (i128::from(*a) * i128::from(*d)).cmp(&(i128::from(*c) * i128::from(*b)));
        }
        let ((a, b), (c, d)) = (self.parts(), other.parts());
        (a * d).cmp(&(c * b))
    }
}

impl std::fmt::Display for Rat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.bits() > 4096 {
            return write!(f, "a rational of {} bits", self.bits());
        }
        match self {
            Rat::Small(n, 1) => write!(f, "{n}"),
            Rat::Small(n, d) => write!(f, "{n}/{d}"),
            Rat::Big(b) if b.1.is_one() => write!(f, "{}", b.0),
            Rat::Big(b) => write!(f, "{}/{}", b.0, b.1),
        }
    }
}

fn big_ratio_to_f64(n: &BigInt, d: &BigInt) -> f64 {
    if n.is_zero() {
        return 0.0;
    }
    // Scale the quotient to 64 or 65 significant bits, divide, and scale back: one rounding of the quotient.
    let shift = 65 + d.bits() as i64 - n.bits() as i64;
    let quotient =
        if shift >= 0 { (n << shift as u64) / d } else { n / (d << shift.unsigned_abs()) };
    let mantissa = quotient.to_f64().unwrap_or(f64::NAN);
    let down = -shift;
    if down.unsigned_abs() > 1000 {
        let half = (down / 2) as i32;
        return mantissa * 2_f64.powi(half) * 2_f64.powi(down as i32 - half);
    }
    mantissa * 2_f64.powi(down as i32)
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        // Words are divided faster.
        if let (Ok(x), Ok(y)) = (u64::try_from(a), u64::try_from(b)) {
            return x.gcd(&y).into();
        }
        (a, b) = (b, a % b);
    }
    a.max(1)
}
