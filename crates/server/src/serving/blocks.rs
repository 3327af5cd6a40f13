//! A body as it comes, in blocks: a vector would be copied whenever it grows.

/// Bytes in blocks.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    blocks: Vec<Vec<u8>>,
    length: usize,
}

impl Blocks {
    /// The bytes of the first block, and the most of those of others.
    const FIRST_BYTES: usize = 16 << 10;
    const BYTES: usize = 256 << 10;

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The bytes that the blocks take.
    pub(crate) fn capacity(&self) -> usize {
        self.blocks.iter().map(Vec::capacity).sum()
    }

    /// The bytes that the blocks will take once `more` bytes are added, of which `announced` are to come in all.
    pub(crate) fn capacity_with(&self, more: usize, announced: usize) -> usize {
        match self.lack(more) {
            0 => self.capacity(),
            lack => self.capacity() + self.block_for(lack, announced),
        }
    }

    /// Adds bytes.
    pub(crate) fn push(&mut self, bytes: &[u8], announced: usize) {
        let lack = self.lack(bytes.len());
        let block = if lack > 0 { self.block_for(lack, announced) } else { 0 };
        let (fit, rest) = bytes.split_at(bytes.len() - lack);
        if let Some(last) = self.blocks.last_mut() {
            last.extend_from_slice(fit);
        }
        self.length += bytes.len();
        if lack > 0 {
            let mut last = Vec::with_capacity(block);
            last.extend_from_slice(rest);
            self.blocks.push(last);
        }
    }

    /// The bytes of `more` that the last block has no place for.
    fn lack(&self, more: usize) -> usize {
        let left = self.blocks.last().map_or(0, |last| last.capacity() - last.len());
        more.saturating_sub(left)
    }

    /// The size of a new block for `lack` bytes and some of those that are announced.
    fn block_for(&self, lack: usize, announced: usize) -> usize {
        // Whoever announces much and sends little holds little.
        let usual = self.length.clamp(Self::FIRST_BYTES, Self::BYTES);
        let to_come = announced.saturating_sub(self.length);
        // What comes unannounced may be more.
        let wanted = if to_come == 0 { usual } else { usual.min(to_come) };
        lack.max(wanted)
    }

    /// Whether all bytes are in one block.
    pub(crate) fn is_joined(&self) -> bool {
        self.blocks.len() <= 1
    }

    /// All bytes in one block; before, they are held twice for a moment.
    pub(crate) fn join(&mut self) -> &Vec<u8> {
        if self.blocks.len() != 1 {
            self.blocks = vec![self.blocks.concat()];
        }
        &self.blocks[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_came_and_no_block_grows() {
        let bytes: Vec<u8> = (0..700_000u32).map(|i| i as u8).collect();
        for (part, announced) in [(1_000, 700_000), (100_000, 0), (700_000, 700_000), (7, 20)] {
            let mut blocks = Blocks::default();
            for piece in bytes.chunks(part) {
                let expected = blocks.capacity_with(piece.len(), announced);
                blocks.push(piece, announced);
                assert_eq!(blocks.capacity(), expected);
                assert!(expected <= blocks.len() + Blocks::BYTES);
                assert!(expected <= 2 * blocks.len() + Blocks::FIRST_BYTES);
            }
            assert_eq!(blocks.len(), bytes.len());
            assert_eq!(blocks.is_joined(), part == 700_000);
            assert_eq!(*blocks.join(), bytes);
            assert!(blocks.is_joined());
        }
        assert!(Blocks::default().join().is_empty());
    }
}
