//! Thrift's compact protocol, just enough to check a Parquet file's claims.

/// A value; of binaries only the length matters here.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Thrift {
    Bool,
    Int(i64),
    Double,
    Binary(usize),
    List(Vec<Thrift>),
    Struct(Vec<(i16, Thrift)>),
}

/// Structures in structures; Parquet's own have fewer than ten.
const DEPTH: u32 = 32;

/// The structure at the beginning of the bytes, and its length; otherwise the problem.
pub(super) fn structure(bytes: &[u8]) -> Result<(Thrift, usize), &'static str> {
    let mut reader = Reader { bytes, place: 0 };
    let value = reader.structure(DEPTH)?;
    Ok((value, reader.place))
}

impl Thrift {
    pub(super) fn field(&self, id: i16) -> Option<&Thrift> {
        match self {
            Thrift::Struct(fields) => fields.iter().find(|it| it.0 == id).map(|it| &it.1),
            _ => None,
        }
    }

    pub(super) fn int(&self, id: i16) -> Option<i64> {
        match self.field(id) {
            Some(Thrift::Int(it)) => Some(*it),
            _ => None,
        }
    }

    pub(super) fn list(&self, id: i16) -> Option<&[Thrift]> {
        match self.field(id) {
            Some(Thrift::List(it)) => Some(it),
            _ => None,
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    place: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        let byte = *self.bytes.get(self.place).ok_or("it ends too early")?;
        self.place += 1;
        Ok(byte)
    }

    fn skip(&mut self, count: usize) -> Result<(), &'static str> {
        if count > self.bytes.len() - self.place {
            return Err("it claims more bytes than there are");
        }
        self.place += count;
        Ok(())
    }

    fn unsigned(&mut self) -> Result<u64, &'static str> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number has too many bytes")
    }

    fn signed(&mut self) -> Result<i64, &'static str> {
        let value = self.unsigned()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn structure(&mut self, depth: u32) -> Result<Thrift, &'static str> {
        let mut fields = Vec::new();
        let mut id = 0_i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(Thrift::Struct(fields));
            }
            id = match i16::from(head >> 4) {
                0 => i16::try_from(self.signed()?).map_err(|_| "a field has no number")?,
                delta => id.checked_add(delta).ok_or("a field has no number")?,
            };
            // A boolean field has its value in its type.
            let value = match head & 0x0f {
                1 | 2 => Thrift::Bool,
                kind => self.value(kind, depth)?,
            };
            fields.push((id, value));
        }
    }

    fn value(&mut self, kind: u8, depth: u32) -> Result<Thrift, &'static str> {
        let depth = depth.checked_sub(1).ok_or("it is nested too deeply")?;
        Ok(match kind {
            1 | 2 => {
                self.byte()?;
                Thrift::Bool
            }
            3 => Thrift::Int(i64::from(self.byte()? as i8)),
            4..=6 => Thrift::Int(self.signed()?),
            7 => {
                self.skip(8)?;
                Thrift::Double
            }
            8 => {
                let length = usize::try_from(self.unsigned()?).unwrap_or(usize::MAX);
                self.skip(length)?;
                Thrift::Binary(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.unsigned()?,
                    few => u64::from(few),
                };
                // Every element has a byte at least.
                if count > (self.bytes.len() - self.place) as u64 {
                    return Err("it claims more elements than there are bytes");
                }
                (0..count)
                    .map(|_| match head & 0x0f {
                        12 => self.structure(depth),
                        kind => self.value(kind, depth),
                    })
                    .collect::<Result<_, _>>()
                    .map(Thrift::List)?
            }
            12 => self.structure(depth)?,
            _ => return Err("a field has an unknown type"),
        })
    }
}
