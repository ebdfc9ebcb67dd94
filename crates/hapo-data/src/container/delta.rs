//! Checks the claims of Parquet's delta-encoded pages before the Parquet crate reserves memory for them: the number of
//! values, and the length of the texts.

use parquet::basic::Encoding;

/// Values of a block, at most; writers take 128 to 1024.
const BLOCK: u64 = 1 << 16;
/// Texts of a page may together be this many times as long as its bytes, beyond some megabytes: prefixes
/// are shared.
const GROWTH: u64 = 200;
const SOME_MEGABYTES: u64 = 64 << 20;

/// Looks at the values of a page with at most `most` of them; other encodings pass.
pub(super) fn check(values: &[u8], encoding: Encoding, most: usize) -> Result<(), String> {
    match encoding {
        Encoding::DELTA_BINARY_PACKED => Header::read(&mut Bits::new(values), most).map(drop),
        Encoding::DELTA_LENGTH_BYTE_ARRAY => {
            let (lengths, used) = numbers(values, most)?;
            texts(&[], &lengths, values.len() - used)
        }
        Encoding::DELTA_BYTE_ARRAY => {
            let (prefixes, used) = numbers(values, most)?;
            let rest = &values[used..];
            let (lengths, used) = numbers(rest, most)?;
            if lengths.len() != prefixes.len() {
                return Err(format!("{} prefixes of {} texts", prefixes.len(), lengths.len()));
            }
            texts(&prefixes, &lengths, rest.len() - used)
        }
        _ => Ok(()),
    }
}

/// Texts of these lengths behind these prefixes, out of that many bytes.
fn texts(prefixes: &[i32], lengths: &[i32], bytes: usize) -> Result<(), String> {
    let (mut taken, mut total, mut before) = (0_u64, 0_u64, 0_u64);
    for (number, length) in lengths.iter().enumerate() {
        let prefix = u64::try_from(prefixes.get(number).copied().unwrap_or(0));
        let (Ok(prefix), Ok(length)) = (prefix, u64::try_from(*length)) else {
            return Err("a text of negative length cannot be".to_owned());
        };
        if prefix > before {
            return Err("a prefix is longer than the text before it".to_owned());
        }
        taken += length;
        before = prefix + length;
        total += before;
        if taken > bytes as u64 || total > bytes as u64 * GROWTH + SOME_MEGABYTES {
            return Err(format!("texts of {} bytes do not fit into {bytes}", taken.max(total)));
        }
    }
    Ok(())
}

struct Header {
    count: usize,
    values_per_miniblock: usize,
    miniblocks: usize,
    first: i32,
}

impl Header {
    fn read(bits: &mut Bits<'_>, most: usize) -> Result<Self, String> {
        let block = bits.varint()?;
        let miniblocks = bits.varint()?;
        let count = bits.varint()?;
        let first = bits.zigzag()? as i32;
        if block == 0 || block > BLOCK || miniblocks == 0 || miniblocks > block {
            return Err(format!("a block of {block} values in {miniblocks} parts cannot be"));
        }
        if count > most as u64 {
            return Err(format!("{count} values in a page of {most} cannot be"));
        }
        Ok(Self {
            count: count as usize,
            values_per_miniblock: (block / miniblocks) as usize,
            miniblocks: miniblocks as usize,
            first,
        })
    }
}

/// The whole numbers at the beginning of the bytes, and how many bytes they take.
fn numbers(bytes: &[u8], most: usize) -> Result<(Vec<i32>, usize), String> {
    let mut bits = Bits::new(bytes);
    let header = Header::read(&mut bits, most)?;
    let mut numbers = Vec::new();
    if header.count > 0 {
        numbers.push(header.first);
    }
    let mut last = header.first;
    while numbers.len() < header.count {
        let least = bits.zigzag()? as i32;
        let widths = bits.take(header.miniblocks)?;
        for width in widths {
            if numbers.len() >= header.count {
                break;
            }
            let width = usize::from(*width);
            if width > 32 {
                return Err(format!("numbers of {width} bits cannot be"));
            }
            let packed = bits.take(header.values_per_miniblock * width / 8)?;
            let left = (header.count - numbers.len()).min(header.values_per_miniblock);
            for number in 0..left {
                last = last.wrapping_add(least).wrapping_add(unpacked(packed, number, width));
                numbers.push(last);
            }
        }
    }
    Ok((numbers, bits.place))
}

/// The number at a place among numbers of `width` bits, the lowest bit first.
fn unpacked(packed: &[u8], number: usize, width: usize) -> i32 {
    let mut it = 0_u32;
    for bit in 0..width {
        let at = number * width + bit;
        it |= u32::from(packed[at / 8] >> (at % 8) & 1) << bit;
    }
    it as i32
}

struct Bits<'a> {
    bytes: &'a [u8],
    place: usize,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, place: 0 }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.place..];
        let taken = rest.get(..count).ok_or("a page ends in its numbers")?;
        self.place += count;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut it = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.take(1)?[0];
            it |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(it);
            }
        }
        Err("a number of a page is too long".to_owned())
    }

    fn zigzag(&mut self) -> Result<i64, String> {
        let it = self.varint()?;
        Ok((it >> 1) as i64 ^ -((it & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 7, 5, 3, 1, 2, 3, 4, 5: the example of the format's documentation, in blocks of 128 in 4 parts.
    const NUMBERS: [u8; 12] = [0x80, 1, 4, 8, 14, 3, 2, 0, 0, 0, 0b1100_0000, 0b0011_1111];

    #[test]
    fn numbers_are_those_of_the_documentation() {
        let mut bytes = NUMBERS.to_vec();
        bytes.resize(4 + 1 + 1 + 4 + 8, 0);
        assert_eq!(numbers(&bytes, 8).unwrap(), (vec![7, 5, 3, 1, 2, 3, 4, 5], 18));
        assert_eq!(numbers(&bytes, 7).unwrap_err(), "8 values in a page of 7 cannot be");
        assert_eq!(numbers(&bytes[..12], 8).unwrap_err(), "a page ends in its numbers");
    }

    #[test]
    fn claims_that_the_bytes_cannot_support_are_refused() {
        assert_eq!(texts(&[], &[3, 4], 7), Ok(()));
        assert_eq!(texts(&[], &[3, 5], 7).unwrap_err(), "texts of 8 bytes do not fit into 7");
        assert!(texts(&[], &[-1], 7).unwrap_err().contains("negative"));
        assert!(texts(&[1], &[3], 7).unwrap_err().contains("prefix"));
        // 1,000 texts of a megabyte each, out of one.
        let mut prefixes = vec![1 << 20; 1000];
        prefixes[0] = 0;
        let mut lengths = vec![0; 1000];
        lengths[0] = 1 << 20;
        assert!(texts(&prefixes, &lengths, 1 << 20).unwrap_err().contains("do not fit"));
        let block = |it: &[u8]| check(it, Encoding::DELTA_BINARY_PACKED, 9).unwrap_err();
        assert_eq!(
            block(&[0x80, 0x80, 0x80, 1, 1, 1, 0]),
            "a block of 2097152 values in 1 parts cannot be"
        );
    }
}
