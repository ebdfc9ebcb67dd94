//! Complex numbers.

use super::big::Big;
use crate::number::Rat;
use std::cmp::Ordering;

/// A complex number; without an imaginary part it is exactly real.
#[derive(Clone)]
pub(super) struct Complex {
    pub(super) re: Big,
    pub(super) im: Option<Big>,
}

impl Complex {
    pub(super) fn real(re: Big) -> Complex {
        Complex { re, im: None }
    }

    pub(super) fn rat(value: &Rat) -> Complex {
        Complex::real(Big::from_rat(value))
    }

    pub(super) fn int(n: i64) -> Complex {
        Complex::rat(&Rat::int(n))
    }

    pub(super) fn i() -> Complex {
        Complex { re: Big::from_rat(&Rat::int(0)), im: Some(Big::from_rat(&Rat::int(1))) }
    }

    pub(super) fn add(&self, other: &Self) -> Self {
        let im = match (&self.im, &other.im) {
            (Some(a), Some(b)) => Some(a.add(b)),
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        Complex { re: self.re.add(&other.re), im }
    }

    pub(super) fn neg(&self) -> Self {
        Complex { re: self.re.neg(), im: self.im.as_ref().map(Big::neg) }
    }

    pub(super) fn sub(&self, other: &Self) -> Self {
        self.add(&other.neg())
    }

    pub(super) fn mul(&self, other: &Self) -> Self {
        match (&self.im, &other.im) {
            (None, None) => Complex::real(self.re.mul(&other.re)),
            (Some(b), None) => Complex { re: self.re.mul(&other.re), im: Some(b.mul(&other.re)) },
            (None, Some(d)) => Complex { re: self.re.mul(&other.re), im: Some(d.mul(&self.re)) },
            (Some(b), Some(d)) => Complex {
                re: self.re.mul(&other.re).add(&b.mul(d).neg()),
                im: Some(self.re.mul(d).add(&b.mul(&other.re))),
            },
        }
    }

    pub(super) fn recip(&self) -> Option<Self> {
        match &self.im {
            None => Some(Complex::real(self.re.recip()?)),
            Some(b) => {
                let size = self.re.mul(&self.re).add(&b.mul(b)).recip()?;
                Some(Complex { re: self.re.mul(&size), im: Some(b.neg().mul(&size)) })
            }
        }
    }

    pub(super) fn abs(&self) -> Option<Big> {
        match &self.im {
            None => match self.re.sign() {
                Some(Ordering::Less) => Some(self.re.neg()),
                Some(_) => Some(self.re.clone()),
                None => self.re.mul(&self.re).sqrt(),
            },
            Some(b) => self.re.mul(&self.re).add(&b.mul(b)).sqrt(),
        }
    }

    pub(super) fn exp(&self) -> Option<Self> {
        let size = self.re.exp()?;
        match &self.im {
            None => Some(Complex::real(size)),
            Some(b) => {
                let (sin, cos) = b.sin_cos()?;
                Some(Complex { re: size.mul(&cos), im: Some(size.mul(&sin)) })
            }
        }
    }

    /// Principal branch. An imaginary part that may be zero counts as zero on the negative axis.
    pub(super) fn ln(&self) -> Option<Self> {
        let im = self.im.as_ref().filter(|b| !b.is_negligible());
        match im {
            None => match self.re.sign()? {
                Ordering::Greater => Some(Complex::real(self.re.ln()?)),
                Ordering::Less => Some(Complex { re: self.re.neg().ln()?, im: Some(Big::pi()) }),
                Ordering::Equal => None,
            },
            Some(b) => {
                let size = self.re.mul(&self.re).add(&b.mul(b)).ln()?;
                let half = Big::from_rat(&Rat::ratio(1, 2));
                // arg = ±(π/2 − atan(re / |im|)), which has no cut off the axis.
                let upper = b.sign()? == Ordering::Greater;
                let height = if upper { b.clone() } else { b.neg() };
                let arg = Big::pi().mul(&half).add(&self.re.mul(&height.recip()?).atan().neg());
                Some(Complex { re: size.mul(&half), im: Some(if upper { arg } else { arg.neg() }) })
            }
        }
    }

    pub(super) fn sqrt(&self) -> Option<Self> {
        if self.im.as_ref().is_none_or(Big::is_negligible) {
            return match self.re.sign() {
                Some(Ordering::Less) => Some(Complex {
                    re: Big::from_rat(&Rat::int(0)),
                    im: Some(self.re.neg().sqrt()?),
                }),
                _ => Some(Complex::real(self.re.sqrt()?)),
            };
        }
        self.ln()?.mul(&Complex::rat(&Rat::ratio(1, 2))).exp()
    }

    pub(super) fn powi(&self, exponent: i64) -> Option<Self> {
        let (mut result, mut base) = (Complex::int(1), self.clone());
        let mut n = exponent.unsigned_abs();
        while n > 0 {
            if n & 1 == 1 {
                result = result.mul(&base);
            }
            n >>= 1;
            if n > 0 {
                base = base.mul(&base);
            }
        }
        if exponent < 0 { result.recip() } else { Some(result) }
    }

    pub(super) fn sin_cos(&self) -> Option<(Self, Self)> {
        let Some(b) = &self.im else {
            let (sin, cos) = self.re.sin_cos()?;
            return Some((Complex::real(sin), Complex::real(cos)));
        };
        let (sin, cos) = self.re.sin_cos()?;
        let (up, down) = (b.exp()?, b.neg().exp()?);
        let half = Big::from_rat(&Rat::ratio(1, 2));
        let cosh = up.add(&down).mul(&half);
        let sinh = up.add(&down.neg()).mul(&half);
        Some((
            Complex { re: sin.mul(&cosh), im: Some(cos.mul(&sinh)) },
            Complex { re: cos.mul(&cosh), im: Some(sin.mul(&sinh).neg()) },
        ))
    }

    pub(super) fn asin(&self) -> Option<Self> {
        let one = Complex::int(1);
        let rest = one.sub(&self.mul(self));
        if self.im.is_none() {
            let half_pi = Big::pi().mul(&Big::from_rat(&Rat::ratio(1, 2)));
            if rest.re.is_negligible() {
                let negative = self.re.sign()? == Ordering::Less;
                return Some(Complex::real(if negative { half_pi.neg() } else { half_pi }));
            }
            if rest.re.sign()? == Ordering::Greater {
                return Some(Complex::real(self.re.mul(&rest.re.sqrt()?.recip()?).atan()));
            }
        }
        let inner = Complex::i().mul(self).add(&rest.sqrt()?);
        Some(Complex::i().neg().mul(&inner.ln()?))
    }

    pub(super) fn acos(&self) -> Option<Self> {
        let half_pi = Complex::real(Big::pi().mul(&Big::from_rat(&Rat::ratio(1, 2))));
        Some(half_pi.sub(&self.asin()?))
    }

    /// Of a real number.
    pub(super) fn atan(&self) -> Option<Self> {
        self.im.is_none().then(|| Complex::real(self.re.atan()))
    }
}
