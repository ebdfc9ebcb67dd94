//! The pages of a key/value cache: which are free, and which prompts use one.
//!
//! A full page of a prompt is known by its tokens and by the page before it, so that prompts that begin alike share
//! pages: the keys and values of a token depend on the tokens before it alone.

use std::collections::HashMap;

use hapo_kernels::PAGE;

/// Pages of a prompt; another prompt wrote the first ones.
#[derive(Debug)]
pub(crate) struct PromptPages {
    pub(crate) pages: Vec<u32>,
    /// Tokens of the pages that are written already.
    pub(crate) written: usize,
}

/// The page before, and the tokens.
type Key = (Option<u32>, Box<[u32]>);

#[derive(Debug)]
pub(crate) struct Pages {
    /// The last one is taken next: memory that was touched is used again.
    free: Vec<u32>,
    users: Vec<u32>,
    shared: HashMap<Key, u32>,
    /// By page, where it is shared.
    key_of: Vec<Option<Key>>,
}

impl Pages {
    pub(crate) fn new(count: usize) -> Self {
        let free = (0..count as u32).rev().collect();
        Self { free, users: vec![0; count], shared: HashMap::new(), key_of: vec![None; count] }
    }

    pub(crate) fn count(&self) -> usize {
        self.users.len()
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        let page = self.free.pop()?;
        self.users[page as usize] = 1;
        Some(page)
    }

    /// Pages for the tokens of a prompt, or none if too few are free. With `share` others may have its full pages.
    pub(crate) fn take_for(&mut self, tokens: &[u32], share: bool) -> Option<PromptPages> {
        // The shared pages with which these tokens begin.
        let mut pages: Vec<u32> = Vec::new();
        for tokens in tokens.chunks_exact(PAGE) {
            match self.shared.get(&(pages.last().copied(), tokens.into())) {
                Some(&page) => pages.push(page),
                None => break,
            }
        }
        let written = pages.len() * PAGE;
        let more = tokens.len().div_ceil(PAGE) - pages.len();
        if more > self.free.len() {
            return None;
        }
        for &page in &pages {
            self.users[page as usize] += 1;
        }
        pages.extend((0..more).map_while(|_| self.take()));
        if share {
            self.share(tokens, &pages);
        }
        Some(PromptPages { pages, written })
    }

    /// Lets others share the full pages of a prompt, up to one whose like is shared already.
    pub(crate) fn share(&mut self, tokens: &[u32], pages: &[u32]) {
        let mut before = None;
        for (tokens, &page) in tokens.chunks_exact(PAGE).zip(pages) {
            let key: Key = (before, tokens.into());
            if *self.shared.entry(key.clone()).or_insert(page) != page {
                break;
            }
            self.key_of[page as usize] = Some(key);
            before = Some(page);
        }
    }

    pub(crate) fn give(&mut self, pages: &[u32]) {
        for &page in pages.iter().rev() {
            let users = &mut self.users[page as usize];
            *users -= 1;
            if *users == 0 {
                if let Some(key) = self.key_of[page as usize].take() {
                    self.shared.remove(&key);
                }
                self.free.push(page);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(n: usize, last: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (0..n as u32).collect();
        *all.last_mut().unwrap() = last;
        all
    }

    /// 200 tokens are three full pages and a rest; another end changes the rest alone, another token of the second
    /// page that one and all after it.
    #[test]
    fn prompts_that_begin_alike_share_their_full_pages() {
        let mut pages = Pages::new(16);
        let first = pages.take_for(&tokens(200, 7), true).unwrap();
        assert_eq!((first.pages.len(), first.written, pages.free()), (4, 0, 12));
        let second = pages.take_for(&tokens(200, 8), true).unwrap();
        assert_eq!((second.written, pages.free()), (192, 11));
        assert_eq!(second.pages[..3], first.pages[..3]);
        let mut other = tokens(200, 7);
        other[70] = 1;
        let third = pages.take_for(&other, true).unwrap();
        assert_eq!((third.written, pages.free()), (64, 8));
        // Pages in use stay, whoever wrote them; unused pages are free and no longer shared.
        pages.give(&first.pages);
        assert_eq!(pages.free(), 9);
        pages.give(&second.pages);
        assert_eq!(pages.free(), 12);
        let again = pages.take_for(&tokens(200, 7), true).unwrap();
        assert_eq!(again.written, 64);
        pages.give(&again.pages);
        pages.give(&third.pages);
        assert_eq!((pages.free(), pages.shared.len()), (16, 0));
    }

    /// A prompt read in pieces shares its pages when it is complete; if another prompt read the same pages meanwhile,
    /// it keeps its own.
    #[test]
    fn pages_are_shared_once_they_are_written() {
        let mut pages = Pages::new(8);
        let slow = pages.take_for(&tokens(128, 1), false).unwrap();
        let fast = pages.take_for(&tokens(128, 1), true).unwrap();
        assert_eq!((fast.written, pages.free()), (0, 4));
        pages.share(&tokens(128, 1), &slow.pages);
        let third = pages.take_for(&tokens(128, 1), true).unwrap();
        assert_eq!((third.pages.clone(), third.written), (fast.pages.clone(), 128));
        for it in [slow, fast, third] {
            pages.give(&it.pages);
        }
        assert_eq!((pages.free(), pages.shared.len()), (8, 0));
        assert!(pages.take_for(&tokens(513, 1), true).is_none() && pages.free() == 8);
    }
}
