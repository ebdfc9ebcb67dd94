//! Digests as text.

/// Bytes in hexadecimal, in small letters.
pub fn hex(digest: impl AsRef<[u8]>) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = digest.as_ref().iter().flat_map(|it| [it >> 4, it & 15]);
    digits.map(|it| char::from(DIGITS[usize::from(it)])).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(super::hex([0_u8, 9, 10, 255]), "00090aff");
        assert_eq!(super::hex([]), "");
    }
}
