//! What a ring should do, written from the documentation with a `VecDeque`; and elements that count themselves. The property
//! tests and the fuzz target (tests/fuzz) compare the rings with it.

use percpu_ref::ptr_ring::Clearing;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// An element that counts its kind.
pub(crate) struct Item {
    pub(crate) id: u32,
    alive: Rc<Cell<i64>>,
}

impl Drop for Item {
    fn drop(&mut self) {
        self.alive.set(self.alive.get() - 1);
    }
}

#[derive(Default)]
pub(crate) struct Factory {
    alive: Rc<Cell<i64>>,
    next: u32,
}

impl Factory {
    pub(crate) fn one(&mut self) -> Box<Item> {
        self.alive.set(self.alive.get() + 1);
        self.next += 1;
        Box::new(Item { id: self.next, alive: Rc::clone(&self.alive) })
    }

    /// Elements that have been made and not been dropped.
    pub(crate) fn alive(&self) -> i64 {
        self.alive.get()
    }

    pub(crate) fn many(&mut self, n: usize) -> Vec<Box<Item>> {
        (0..n).map(|_| self.one()).collect()
    }
}

pub(crate) fn ids(items: &[Box<Item>]) -> Vec<u32> {
    items.iter().map(|i| i.id).collect()
}

/// What a ring should be: the elements, and which slots are not cleared. Written from the documentation.
pub(crate) struct Model {
    pub(crate) elements: VecDeque<u32>,
    pub(crate) capacity: usize,
    clearing: Clearing,
    head: usize,
    uncleared: usize,
}

impl Model {
    pub(crate) fn new(capacity: usize, clearing: Clearing) -> Self {
        Self { elements: VecDeque::new(), capacity, clearing, head: 0, uncleared: 0 }
    }

    fn batch(&self) -> usize {
        match self.clearing {
            Clearing::Credit => (self.capacity / 4).clamp(1, 64),
            Clearing::Kernel if self.capacity >= 32 => 16,
            Clearing::Batch(n) if n > 0 && n <= self.capacity / 2 => n,
            _ => 1,
        }
    }

    pub(crate) fn room(&self) -> usize {
        self.capacity - self.elements.len() - self.uncleared
    }

    pub(crate) fn consume(&mut self) -> Option<u32> {
        let id = self.elements.pop_front()?;
        self.head += 1;
        self.uncleared += 1;
        let whole = match self.clearing {
            Clearing::Credit => self.head.is_multiple_of(self.batch()),
            _ => self.uncleared == self.batch(),
        };
        if whole || self.head == self.capacity {
            self.uncleared = 0;
        }
        self.head %= self.capacity;
        Some(id)
    }

    /// Returns how many go back, the last of the batch; `locked` can go beyond what is not cleared.
    pub(crate) fn unconsume(&mut self, batch: &[u32], locked: bool) -> usize {
        if batch.is_empty() {
            return 0;
        }
        let n = if batch.len() <= self.uncleared || !locked {
            let n = batch.len().min(self.uncleared);
            self.uncleared -= n;
            n
        } else {
            self.uncleared = 0;
            batch.len().min(self.capacity - self.elements.len())
        };
        if n > 0 {
            self.head = (self.head + self.capacity - n) % self.capacity;
        }
        batch[batch.len() - n..].iter().rev().for_each(|id| self.elements.push_front(*id));
        n
    }

    pub(crate) fn resize(&mut self, capacity: usize) -> Vec<u32> {
        let keep = self.elements.len().min(capacity);
        let rest = self.elements.split_off(keep).into();
        *self = Self { elements: std::mem::take(&mut self.elements), ..Self::new(capacity, self.clearing) };
        rest
    }
}
