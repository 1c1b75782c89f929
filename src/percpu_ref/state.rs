//! The shared word, as arithmetic.
//!
//! | bits 63..62 | bits 61..2 | bit 1 | bit 0 |
//! |---|---|---|---|
//! | region | references, in units of 4 | FIRST | DEAD |
//!
//! - DEAD: a kill has begun; whoever sets it is the one killer.
//! - FIRST: the reference that a ref is born with, and that the end of a kill drops, is still there. It is a bit and not
//!   a count of one, so that an ordinary put cannot drop it unnoticed: the references that users hold have run out when
//!   their count has, whatever FIRST is.
//!
//! The two top bits tell what the count means:
//!
//! | region | bits 63..62 | meaning |
//! |---|---|---|
//! | plain | 00 | the count is exact; zero, with FIRST gone, is the end |
//! | biased | 01, 10 | BIAS is in it: part of the count is in cells, and this part may be below or above zero |
//! | saturated | 11 | there was misuse: the count means nothing any more and never reaches zero |
//!
//! One put too many takes a plain count from 0 to `11...`: the arithmetic itself saturates it.
#![forbid(unsafe_code)]

/// A kill has begun.
pub(super) const DEAD: u64 = 1;
/// The first reference has not been dropped.
pub(super) const FIRST: u64 = 2;
/// One reference.
pub(super) const ONE: u64 = 4;
/// Added while cells are open: keeps the word from any region in which it could be zero.
pub(super) const BIAS: u64 = 1 << 63;
/// The middle of the saturated region: 2^60 references away from each end.
const SATURATED: u64 = 0b111 << 61;
/// The largest count that one call may add or take.
pub(super) const MAX_N: usize = u32::MAX as usize;

/// What the two top bits mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    Plain,
    Biased,
    Saturated,
}

pub(super) const fn region(word: u64) -> Region {
    match word >> 62 {
        0b00 => Region::Plain,
        0b11 => Region::Saturated,
        _ => Region::Biased,
    }
}

/// `n` references, as a difference of words. `n` is at most [`MAX_N`].
pub(super) const fn units(n: usize) -> u64 {
    (n as u64) * ONE
}

/// No reference is left, the first one included.
pub(super) const fn is_zero(word: u64) -> bool {
    word & !DEAD == 0
}

/// A kill is over and one reference is left.
pub(super) const fn is_last(word: u64) -> bool {
    word == ONE | DEAD
}

pub(super) const fn is_dead(word: u64) -> bool {
    word & DEAD != 0
}

pub(super) const fn has_first(word: u64) -> bool {
    word & FIRST != 0
}

/// The same life, saturated.
pub(super) const fn saturate(word: u64) -> u64 {
    SATURATED | (word & (DEAD | FIRST))
}

/// What a get found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    Counted,
    /// The word has to be saturated again: gets and puts make it drift.
    Drifted,
    AfterRelease,
    TooMany,
}

/// Judges a get of `units` that found `old`.
pub(super) const fn got(old: u64, units: u64) -> Got {
    match (region(old), region(old.wrapping_add(units))) {
        (Region::Saturated, _) => Got::Drifted,
        (Region::Plain, _) if is_zero(old) => Got::AfterRelease,
        (Region::Plain, Region::Plain) | (Region::Biased, Region::Biased) => Got::Counted,
        _ => Got::TooMany,
    }
}

/// What a put found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Counted,
    /// It was the last reference: release.
    Last,
    /// The word has to be saturated again.
    Drifted,
    Surplus,
}

/// Judges a put of `units` that found `old`.
pub(super) const fn put(old: u64, units: u64) -> Put {
    let new = old.wrapping_sub(units);
    match (region(old), region(new)) {
        (Region::Saturated, _) => Put::Drifted,
        (Region::Plain, Region::Plain) if is_zero(new) => Put::Last,
        (Region::Plain, Region::Plain) | (Region::Biased, Region::Biased) => Put::Counted,
        _ => Put::Surplus,
    }
}

/// The word after `sum`, from the cells, has been added and the bias taken out; `None` if it was not biased, an error if
/// the result is below zero.
pub(super) const fn fold(old: u64, sum: u64) -> Option<Result<u64, u64>> {
    if !matches!(region(old), Region::Biased) {
        return None;
    }
    let new = old.wrapping_add(sum.wrapping_mul(ONE)).wrapping_sub(BIAS);
    Some(if matches!(region(new), Region::Plain) { Ok(new) } else { Err(saturate(old)) })
}

/// References that the word and `sum`, from the cells, stand for, the first one included.
pub(super) const fn estimate(word: u64, sum: u64) -> i64 {
    let first = has_first(word) as i64;
    let word = match region(word) {
        Region::Plain => return (word / ONE) as i64 + first,
        Region::Biased => word.wrapping_sub(BIAS),
        Region::Saturated => return i64::MAX,
    };
    (word.wrapping_add(sum.wrapping_mul(ONE)).cast_signed() >> 2) + first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_counts_up_and_down_and_ends_at_zero() {
        let born = FIRST;
        assert_eq!(got(born, units(3)), Got::Counted);
        let dying = (born + units(3)) | DEAD;
        assert_eq!(put(dying, units(3)), Put::Counted);
        let last = dying - FIRST;
        assert_eq!(put(last, units(2)), Put::Counted);
        assert_eq!(put(last, units(3)), Put::Last);
        assert!(is_zero(last - units(3)));
    }

    #[test]
    fn a_put_beyond_what_users_hold_is_surplus_whether_or_not_the_first_is_there() {
        for word in [FIRST, FIRST | DEAD, DEAD, FIRST + units(4)] {
            let held = word / ONE;
            assert_eq!(put(word, units(held as usize + 1)), Put::Surplus);
            assert_eq!(region(word.wrapping_sub(units(held as usize + 1))), Region::Saturated);
        }
    }

    #[test]
    fn a_get_on_a_released_word_is_misuse_and_on_a_saturated_one_changes_nothing() {
        assert_eq!(got(DEAD, ONE), Got::AfterRelease);
        assert_eq!(got(saturate(DEAD), ONE), Got::Drifted);
        assert_eq!(put(saturate(FIRST), units(MAX_N)), Put::Drifted);
        assert_eq!(saturate(FIRST | DEAD) & 3, FIRST | DEAD);
    }

    #[test]
    fn leaving_a_region_upwards_is_too_many() {
        let full = (1 << 62) - ONE;
        assert_eq!(got(full, ONE), Got::TooMany);
        assert_eq!(got(0b11 << 62, ONE), Got::Drifted);
        assert_eq!(got((0b11 << 62) - ONE, ONE), Got::TooMany);
    }

    #[test]
    fn folding_takes_the_bias_out_once_and_finds_what_is_below_zero() {
        let biased = BIAS + FIRST;
        assert_eq!(fold(biased, 5), Some(Ok(FIRST + units(5))));
        // The get was counted in a cell, the put here.
        assert_eq!(fold(biased.wrapping_sub(units(2)), 2), Some(Ok(FIRST)));
        assert_eq!(fold(biased, u64::MAX), Some(Err(saturate(FIRST))));
        assert_eq!(fold(FIRST, 5), None);
        assert_eq!(fold(saturate(FIRST), 5), None);
    }

    #[test]
    fn the_estimate_is_the_sum_of_both_parts() {
        assert_eq!(estimate(FIRST + units(2), 99), 3);
        assert_eq!(estimate(BIAS + FIRST, 7), 8);
        assert_eq!(estimate(BIAS + FIRST, (-7_i64).cast_unsigned()), -6);
        assert_eq!(estimate(DEAD, 0), 0);
    }
}
