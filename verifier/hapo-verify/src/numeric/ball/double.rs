//! Doubles with an error bound.

use super::Ball;
use crate::number::Rat;
use std::cmp::Ordering;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Double {
    pub(crate) value: f64,
    pub(crate) error: f64,
}

const EPS: f64 = 4.0 * f64::EPSILON;

impl Double {
    pub(super) fn rounded(value: f64, error: f64) -> Double {
        Double { value, error: error * (1.0 + EPS) + value.abs() * EPS + f64::MIN_POSITIVE }
    }

    pub(super) fn checked(self) -> Option<Double> {
        (self.value.is_finite() && self.error.is_finite()).then_some(self)
    }
}

impl Ball for Double {
    const COST: u32 = 4;

    fn from_rat(value: &Rat) -> Double {
        let approximate = value.to_f64();
        let exact = value.to_i64().is_some_and(|n| n.unsigned_abs() < 1 << 53);
        if exact {
            Double { value: approximate, error: 0.0 }
        } else {
            Double::rounded(approximate, 0.0)
        }
    }

    fn pi() -> Double {
        Double::rounded(std::f64::consts::PI, 0.0)
    }

    fn e() -> Double {
        Double::rounded(std::f64::consts::E, 0.0)
    }

    fn euler_gamma() -> Double {
        Double::rounded(0.577_215_664_901_532_9, 0.0)
    }

    fn add(&self, other: &Double) -> Double {
        Double::rounded(self.value + other.value, self.error + other.error)
    }

    fn neg(&self) -> Double {
        Double { value: -self.value, error: self.error }
    }

    fn mul(&self, other: &Double) -> Double {
        let error = self.value.abs() * other.error
            + other.value.abs() * self.error
            + self.error * other.error;
        Double::rounded(self.value * other.value, error)
    }

    fn recip(&self) -> Option<Double> {
        let lowest = self.value.abs() - self.error;
        if lowest <= 0.0 {
            return None;
        }
        Double::rounded(1.0 / self.value, self.error / (self.value.abs() * lowest)).checked()
    }

    fn sqrt(&self) -> Option<Double> {
        if self.value + self.error < 0.0 {
            return None;
        }
        let root = self.value.max(0.0).sqrt();
        let error = if self.error == 0.0 {
            0.0
        } else if root * root > 4.0 * self.error {
            self.error / root
        } else {
            self.error.sqrt() * 3.0
        };
        Some(Double::rounded(root, error))
    }

    fn exp(&self) -> Option<Double> {
        if self.error > 0.5 || self.value > 700.0 {
            return None;
        }
        let value = self.value.exp();
        Double::rounded(value, value * (self.error * 2.0 + self.value.abs() * EPS)).checked()
    }

    fn ln(&self) -> Option<Double> {
        let lowest = self.value - self.error;
        if lowest <= 0.0 {
            return None;
        }
        let error = self.error / lowest;
        Some(Double {
            value: self.value.ln(),
            error: error * (1.0 + EPS) + EPS * (1.0 + self.value.ln().abs()),
        })
    }

    fn sin_cos(&self) -> Option<(Double, Double)> {
        if self.value.abs() > 1e9 || self.error > 0.5 {
            return None;
        }
        let (sin, cos) = self.value.sin_cos();
        let error = self.error + EPS;
        Some((Double { value: sin, error }, Double { value: cos, error }))
    }

    fn atan(&self) -> Double {
        Double { value: self.value.atan(), error: self.error + EPS * 2.0 }
    }

    fn sign(&self) -> Option<Ordering> {
        if self.value.abs() > self.error {
            return self.value.partial_cmp(&0.0);
        }
        (self.value == 0.0 && self.error == 0.0).then_some(Ordering::Equal)
    }

    fn floor(&self) -> Option<Rat> {
        let (low, high) = ((self.value - self.error).floor(), (self.value + self.error).floor());
        (low == high && low.abs() < 9e15).then(|| Rat::int(low as i64))
    }

    fn is_negligible(&self) -> bool {
        self.value.abs() <= self.error && self.error < 1e-9
    }
}
