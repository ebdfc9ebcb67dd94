//! Exact rationals with a digit bound. Every operation that could grow is checked against [`MAX_BITS`] and gives `None`
//! beyond it: the caller then compares in another way or gives up. Nothing allocates in proportion to a *value*.

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{Float, One, Signed, ToPrimitive, Zero};
use std::cmp::Ordering;

/// Largest numerator or denominator that is ever computed, in bits (about 19,700 decimal digits).
pub(crate) const MAX_BITS: u64 = 65_536;

/// Longest number literal that is read, in digits. A longer one is compared as text.
pub(crate) const MAX_LITERAL_DIGITS: usize = 8_192;

/// A rational number in lowest terms with a positive denominator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rat {
    upper: BigInt,
    lower: BigInt,
}

impl Rat {
    pub(crate) fn int(n: i64) -> Rat {
        Rat::whole(n.into())
    }

    pub(crate) fn whole(n: BigInt) -> Rat {
        Rat { upper: n, lower: BigInt::one() }
    }

    /// `n / d` of a denominator that is not zero.
    pub(crate) fn ratio(n: i64, d: i64) -> Rat {
        Rat::new(n.into(), d.into()).expect("words are small, and the denominator is not zero")
    }

    /// `n / d`, reduced; `None` for a zero denominator and beyond [`MAX_BITS`].
    pub(crate) fn new(n: BigInt, d: BigInt) -> Option<Rat> {
        if d.is_zero() || n.bits().max(d.bits()) > 2 * MAX_BITS {
            return None;
        }
        let divisor = if d.is_one() { d.clone() } else { n.gcd(&d) * d.signum() };
        let it = if divisor.is_one() {
            Rat { upper: n, lower: d }
        } else {
            Rat { upper: n / &divisor, lower: d / divisor }
        };
        (it.bits() <= MAX_BITS).then_some(it)
    }

    pub(crate) fn parts(&self) -> (&BigInt, &BigInt) {
        (&self.upper, &self.lower)
    }

    /// Reads `digits[.digits]`; underscores, signs and exponents are the caller's business.
    pub(crate) fn parse_decimal(text: &str) -> Option<Rat> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let n_digits = whole.len() + fraction.len();
        let digits = format!("{whole}{}", fraction.trim_end_matches('0'));
        if n_digits == 0
            || n_digits > MAX_LITERAL_DIGITS
            || !digits.bytes().all(|b| b.is_ascii_digit())
        {
            return None;
        }
        let n = BigInt::parse_bytes(digits.as_bytes(), 10).unwrap_or_default();
        Rat::new(n, BigInt::from(10).pow((digits.len() - whole.len()) as u32))
    }

    pub(crate) fn from_f64(value: f64) -> Option<Rat> {
        let (mantissa, exponent, sign) = value.is_finite().then(|| value.integer_decode())?;
        Rat::whole(BigInt::from(mantissa) * sign).mul(&Rat::int(2).pow(exponent.into())?)
    }

    pub(crate) fn ten_pow(exponent: i64) -> Option<Rat> {
        Rat::int(10).pow(exponent)
    }

    pub(crate) fn add(&self, other: &Rat) -> Option<Rat> {
        if self.lower == other.lower {
            return Rat::new(&self.upper + &other.upper, self.lower.clone());
        }
        let upper = &self.upper * &other.lower + &other.upper * &self.lower;
        Rat::new(upper, &self.lower * &other.lower)
    }

    pub(crate) fn neg(&self) -> Rat {
        Rat { upper: -&self.upper, lower: self.lower.clone() }
    }

    pub(crate) fn sub(&self, other: &Rat) -> Option<Rat> {
        self.add(&other.neg())
    }

    pub(crate) fn mul(&self, other: &Rat) -> Option<Rat> {
        Rat::new(&self.upper * &other.upper, &self.lower * &other.lower)
    }

    pub(crate) fn div(&self, other: &Rat) -> Option<Rat> {
        Rat::new(&self.upper * &other.lower, &self.lower * &other.upper)
    }

    /// Integer power; `None` when the result would pass [`MAX_BITS`], and for a negative power of zero.
    pub(crate) fn pow(&self, exponent: i64) -> Option<Rat> {
        if self.bits() == 1 && self.is_integer() {
            // 0, 1 and −1, to any power.
            let is_odd = exponent % 2 != 0;
            return match self.to_i64() {
                Some(0) if exponent < 0 => None,
                Some(-1) if is_odd => Some(self.clone()),
                Some(0) if exponent > 0 => Some(self.clone()),
                _ => Some(Rat::int(1)),
            };
        }
        let size = u32::try_from(exponent.unsigned_abs()).ok()?;
        if u64::from(size) * (self.bits() - 1) > MAX_BITS {
            return None;
        }
        let (upper, lower) = (self.upper.pow(size), self.lower.pow(size));
        if exponent < 0 { Rat::new(lower, upper) } else { Some(Rat { upper, lower }) }
    }

    pub(crate) fn bits(&self) -> u64 {
        self.upper.bits().max(self.lower.bits())
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.upper.is_zero()
    }

    pub(crate) fn is_negative(&self) -> bool {
        self.upper.is_negative()
    }

    pub(crate) fn is_integer(&self) -> bool {
        self.lower.is_one()
    }

    pub(crate) fn to_i64(&self) -> Option<i64> {
        self.upper.to_i64().filter(|_| self.is_integer())
    }

    pub(crate) fn floor(&self) -> Rat {
        Rat::whole(self.upper.div_floor(&self.lower))
    }

    /// The nearest double (0, ±∞ when out of range).
    pub(crate) fn to_f64(&self) -> f64 {
        if self.bits() <= 53 {
            // Each part is a double, and the division rounds once.
            let double = |it: &BigInt| it.to_i64().unwrap_or_default() as f64;
            return double(&self.upper) / double(&self.lower);
        }
        // Scale the quotient to 64 or 65 significant bits, divide, and scale back: one rounding of the quotient.
        let up = 65 + self.lower.bits() as i64 - self.upper.bits() as i64;
        let quotient = if up >= 0 {
            (&self.upper << up as u64) / &self.lower
        } else {
            &self.upper / (&self.lower << up.unsigned_abs())
        };
        let half = (-up / 2) as i32;
        let mantissa = quotient.to_f64().unwrap_or(f64::NAN);
        mantissa * 2_f64.powi(half) * 2_f64.powi(-up as i32 - half)
    }

    /// `self * 10^places`, rounded half to even, as an integer.
    pub(crate) fn round_scaled(&self, places: u32) -> BigInt {
        let (quotient, rest) =
            (&self.upper * BigInt::from(10).pow(places)).div_mod_floor(&self.lower);
        match (rest * 2_u8).cmp(&self.lower) {
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
        (&self.upper * &other.lower).cmp(&(&other.upper * &self.lower))
    }
}

impl std::fmt::Display for Rat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.bits() {
            4_097.. => write!(f, "a rational of {} bits", self.bits()),
            _ if self.is_integer() => write!(f, "{}", self.upper),
            _ => write!(f, "{}/{}", self.upper, self.lower),
        }
    }
}
