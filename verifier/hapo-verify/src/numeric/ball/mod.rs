//! Real numbers known up to an error: doubles for a quick answer, 256-bit floats for a sure one.
//!
//! Every operation carries a bound of its error along, so that "differ" is a proof and "equal" means equal to at
//! least 50 digits. The bounds are generous rather than tight.

mod big;
mod double;
mod fixed;

use crate::number::Rat;
pub(crate) use big::Big;
pub(crate) use double::Double;
use std::cmp::Ordering;

pub(crate) trait Ball: Clone + Sized {
    /// Steps that an elementary function costs.
    const COST: u32;
    fn from_rat(value: &Rat) -> Self;
    fn pi() -> Self;
    fn e() -> Self;
    fn euler_gamma() -> Self;
    fn add(&self, other: &Self) -> Self;
    fn neg(&self) -> Self;
    fn mul(&self, other: &Self) -> Self;
    /// `None` if the ball may hold zero.
    fn recip(&self) -> Option<Self>;
    /// For a ball that is not negative.
    fn sqrt(&self) -> Option<Self>;
    fn exp(&self) -> Option<Self>;
    /// For a ball that is surely positive.
    fn ln(&self) -> Option<Self>;
    fn sin_cos(&self) -> Option<(Self, Self)>;
    fn atan(&self) -> Self;
    /// The sign, if the error leaves no doubt. An exact zero is `Equal`.
    fn sign(&self) -> Option<Ordering>;
    /// The largest integer not above, if there is no doubt.
    fn floor(&self) -> Option<Rat>;
    /// True if the ball is as small as rounding alone explains: zero for every purpose of comparison.
    fn is_negligible(&self) -> bool;
}
