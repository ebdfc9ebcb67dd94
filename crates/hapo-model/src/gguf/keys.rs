//! Keys of GGUF and their values, written.

/// Keys with their values, as they stand in the file.
#[derive(Default)]
pub(super) struct Keys {
    pub(super) bytes: Vec<u8>,
    pub(super) count: u64,
}

impl Keys {
    fn value(&mut self, key: &str, kind: u32, value: &[u8]) {
        self.count += 1;
        put_text(&mut self.bytes, key);
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(value);
    }

    pub(super) fn u32(&mut self, key: &str, value: u32) {
        self.value(key, 4, &value.to_le_bytes());
    }

    pub(super) fn f32(&mut self, key: &str, value: f32) {
        self.value(key, 6, &value.to_le_bytes());
    }

    pub(super) fn bool(&mut self, key: &str, value: bool) {
        self.value(key, 7, &[value.into()]);
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        let mut bytes = Vec::new();
        put_text(&mut bytes, value);
        self.value(key, 8, &bytes);
    }

    /// A list of values of a type, each written by `put`.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        kind: u32,
        values: impl Iterator<Item = T>,
        put: impl Fn(&mut Vec<u8>, T),
    ) {
        let (mut bytes, mut count) = (Vec::new(), 0_u64);
        for it in values {
            put(&mut bytes, it);
            count += 1;
        }
        let start = [&kind.to_le_bytes()[..], &count.to_le_bytes(), &bytes].concat();
        self.value(key, 9, &start);
    }
}

pub(super) fn put_text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}
