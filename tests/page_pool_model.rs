//! The pool against a model, by random sequences of calls of two owners and of users without a cache: which page comes out,
//! every number of the statistics, how many pages are out, and when there is none.

use percpu_ref::page_pool::{AllocError, Allocator, Frag, Page, PageBytes, PagePool, Stats, recycle_bulk};
use proptest::prelude::*;
use std::collections::{HashSet, VecDeque};

/// One call. Numbers choose an owner, or one of the things that are held, in turn.
#[derive(Clone, Debug)]
enum Call {
    Alloc(usize),
    AllocBulk(usize, usize),
    AllocShared,
    Recycle(usize, usize),
    Drop(usize),
    DropBulk(usize),
    Frag(usize, usize),
    DropFrag(usize),
    Freeze(usize),
    FreezeFrag(usize),
    Part(usize),
    DropBytes(usize),
    NewOwner(usize),
}

fn call() -> impl Strategy<Value = Call> {
    let which = 0..1000_usize;
    let owner = 0..2_usize;
    prop_oneof![
        6 => owner.clone().prop_map(Call::Alloc),
        2 => (owner.clone(), 0..9_usize).prop_map(|(owner, n)| Call::AllocBulk(owner, n)),
        3 => Just(Call::AllocShared),
        6 => (owner.clone(), which.clone()).prop_map(|(owner, i)| Call::Recycle(owner, i)),
        4 => which.clone().prop_map(Call::Drop),
        1 => (0..8_usize).prop_map(Call::DropBulk),
        4 => (owner.clone(), 0..70_usize).prop_map(|(owner, len)| Call::Frag(owner, len)),
        4 => which.clone().prop_map(Call::DropFrag),
        1 => which.clone().prop_map(Call::Freeze),
        1 => which.clone().prop_map(Call::FreezeFrag),
        1 => which.clone().prop_map(Call::Part),
        2 => which.prop_map(Call::DropBytes),
        1 => owner.prop_map(Call::NewOwner),
    ]
}

#[derive(Clone, Debug)]
struct Shape {
    cache: usize,
    refill: usize,
    ring: usize,
    max_pages: usize,
}

fn shape() -> impl Strategy<Value = Shape> {
    // A ring of fewer than 8 slots has room for one page as soon as one has been taken out.
    (1..6_usize, 0..4_usize, 0..8_usize, 1..40_usize).prop_map(|(refill, more, ring, max_pages)| Shape {
        cache: refill + more,
        refill,
        ring,
        max_pages,
    })
}

const PAGE: usize = 64;

/// What an owner should have.
#[derive(Default)]
struct Owner {
    cache: Vec<usize>,
    /// The open page and where its next piece begins.
    open: Option<(usize, usize)>,
}

/// What a pool should be: pages are named by their addresses, as they come from home. Written from the documentation.
struct Model {
    shape: Shape,
    owners: [Owner; 2],
    ring: VecDeque<usize>,
    /// Not home.
    away: HashSet<usize>,
    /// Pieces and parts that are out, by page.
    shares: Vec<usize>,
    pages: HashSet<usize>,
    stats: Stats,
}

/// Where the page of an allocation has to come from.
#[derive(Debug, PartialEq)]
enum From {
    Known(usize),
    Home { batch: usize },
    Nowhere,
}

impl Model {
    /// What an owner's allocation should give; the rest of a batch from the ring goes into the cache.
    fn alloc(&mut self, owner: usize) -> From {
        if let Some(page) = self.owners[owner].cache.pop() {
            self.stats.fast += 1;
            return From::Known(page);
        }
        let n = self.shape.refill.min(self.ring.len());
        if n > 0 {
            self.stats.refill += 1;
            self.owners[owner].cache.extend(self.ring.drain(..n));
            return From::Known(self.owners[owner].cache.pop().unwrap());
        }
        self.stats.empty += 1;
        let batch = self.shape.refill.min(self.shape.max_pages - self.away.len());
        if batch > 0 {
            self.stats.slow += 1;
            return From::Home { batch };
        }
        // The page that pieces are cut from, if all are back.
        match self.owners[owner].open {
            Some((page, _)) if !self.shares.contains(&page) => {
                self.owners[owner].open = None;
                self.stats.fast += 1;
                self.stats.cached += 1;
                From::Known(page)
            }
            _ => From::Nowhere,
        }
    }

    fn give_back(&mut self, page: usize) {
        if self.ring.len() < self.shape.ring {
            self.stats.ring += 1;
            self.ring.push_back(page);
        } else {
            self.stats.ring_full += 1;
            self.away.remove(&page);
        }
    }

    fn recycle(&mut self, owner: usize, page: usize) {
        if self.owners[owner].cache.len() < self.shape.cache {
            self.stats.cached += 1;
        } else {
            self.stats.cache_full += 1;
            let coldest: Vec<_> = self.owners[owner].cache.drain(..self.shape.refill).collect();
            coldest.into_iter().for_each(|page| self.give_back(page));
        }
        self.owners[owner].cache.push(page);
    }

    /// A piece or part of a page goes.
    fn drop_share(&mut self, page: usize) {
        let at = self.shares.iter().position(|share| *share == page).unwrap();
        self.shares.swap_remove(at);
        let open = self.owners.iter().any(|owner| owner.open.is_some_and(|(open, _)| open == page));
        if !open && !self.shares.contains(&page) {
            self.pages.remove(&page);
            self.give_back(page);
        }
    }

    fn in_flight(&self) -> usize {
        self.pages.len() + self.shares.iter().collect::<HashSet<_>>().difference(&self.pages.iter().collect()).count()
    }
}

fn name(bytes: &[u8]) -> usize {
    bytes.as_ptr().addr() & !(PAGE - 1)
}

/// The pool, what is held of it, and the model.
struct World {
    pool: PagePool,
    locals: [Allocator; 2],
    pages: Vec<Page>,
    frags: Vec<(usize, Frag)>,
    bytes: Vec<(usize, PageBytes)>,
    model: Model,
}

impl World {
    fn new(shape: &Shape) -> Self {
        let builder = PagePool::builder().page_size(PAGE).cache(shape.cache).refill(shape.refill);
        let pool = builder.ring(shape.ring).max_pages(shape.max_pages).build().unwrap();
        let model = Model {
            shape: shape.clone(),
            owners: Default::default(),
            ring: VecDeque::new(),
            away: HashSet::new(),
            shares: vec![],
            pages: HashSet::new(),
            stats: Stats::default(),
        };
        let locals = [pool.allocator(), pool.allocator()];
        Self { pool, locals, pages: vec![], frags: vec![], bytes: vec![], model }
    }

    /// Checks where a page came from, and learns the names of those that came from home with it.
    fn came_from(&mut self, owner: Option<usize>, from: &From, got: Result<usize, AllocError>) -> Option<usize> {
        match *from {
            From::Nowhere => {
                assert_eq!(got, Err(AllocError::Exhausted));
                None
            }
            From::Known(page) => {
                assert_eq!(got, Ok(page));
                Some(page)
            }
            From::Home { batch } => {
                let page = got.unwrap();
                assert!(self.model.away.insert(page), "it was home");
                if let Some(owner) = owner {
                    // The rest of the batch is in the cache: take it out, which shows the names, and put it back.
                    let before = self.pool.stats();
                    let rest: Vec<_> = (1..batch).map(|_| self.locals[owner].alloc().unwrap()).collect();
                    let mut names: Vec<_> = rest.iter().map(|page| name(page)).collect();
                    assert_eq!(self.pool.stats().fast - before.fast, rest.len() as u64);
                    rest.into_iter().rev().for_each(|page| self.locals[owner].recycle(page));
                    self.model.stats.fast += names.len() as u64;
                    self.model.stats.cached += names.len() as u64;
                    assert!(names.iter().all(|page| self.model.away.insert(*page)), "they were home");
                    names.reverse();
                    self.model.owners[owner].cache = names;
                }
                Some(page)
            }
        }
    }

    fn alloc(&mut self, owner: usize) -> bool {
        let from = self.model.alloc(owner);
        let got = self.locals[owner].alloc();
        let page = self.came_from(Some(owner), &from, got.as_ref().map(|page| name(page)).map_err(Clone::clone));
        self.model.pages.extend(page);
        let done = got.is_ok();
        self.pages.extend(got);
        done
    }

    fn take_page(&mut self, i: usize) -> Option<(usize, Page)> {
        let i = i.checked_rem(self.pages.len())?;
        let page = self.pages.swap_remove(i);
        let at = name(&page);
        self.model.pages.remove(&at);
        Some((at, page))
    }

    fn frag(&mut self, owner: usize, len: usize) {
        if len > PAGE {
            assert_eq!(self.locals[owner].alloc_frag(len).unwrap_err(), AllocError::TooLong);
            return;
        }
        let model = &mut self.model;
        let mut from = None;
        match model.owners[owner].open {
            Some((page, offset)) if offset + len.max(1) <= PAGE => from = Some((From::Known(page), offset)),
            Some((page, _)) => {
                model.owners[owner].open = None;
                if !model.shares.contains(&page) {
                    model.stats.fast += 1;
                    model.stats.cached += 1;
                    from = Some((From::Known(page), 0));
                }
            }
            None => {}
        }
        let (from, offset) = from.unwrap_or_else(|| (self.model.alloc(owner), 0));
        let got = self.locals[owner].alloc_frag(len);
        let at = got.as_ref().map(|frag| frag.as_ptr().addr() - offset).map_err(Clone::clone);
        if let Some(page) = self.came_from(Some(owner), &from, at) {
            let end = (offset + len.max(1)).next_multiple_of(8).min(PAGE);
            self.model.owners[owner].open = Some((page, end));
            self.model.shares.push(page);
            self.frags.push((page, got.unwrap()));
        }
    }

    fn run(&mut self, call: &Call) {
        match *call {
            Call::Alloc(owner) => drop(self.alloc(owner)),
            Call::AllocBulk(owner, n) => {
                // As so many calls; the call itself is tested elsewhere.
                let _all = (0..n).all(|_| self.alloc(owner));
            }
            Call::AllocShared => {
                let from = match self.model.ring.pop_front() {
                    Some(page) => {
                        self.model.stats.refill += 1;
                        From::Known(page)
                    }
                    None => {
                        self.model.stats.empty += 1;
                        let room = self.model.away.len() < self.model.shape.max_pages;
                        self.model.stats.slow += u64::from(room);
                        if room { From::Home { batch: 1 } } else { From::Nowhere }
                    }
                };
                let got = self.pool.alloc();
                let page = self.came_from(None, &from, got.as_ref().map(|page| name(page)).map_err(Clone::clone));
                self.model.pages.extend(page);
                self.pages.extend(got);
            }
            Call::Recycle(owner, i) => {
                if let Some((at, page)) = self.take_page(i) {
                    self.locals[owner].recycle(page);
                    self.model.recycle(owner, at);
                }
            }
            Call::Drop(i) => {
                if let Some((at, page)) = self.take_page(i) {
                    drop(page);
                    self.model.give_back(at);
                }
            }
            Call::DropBulk(n) => {
                let (names, mut pages): (Vec<_>, Vec<_>) = (0..n).map_while(|i| self.take_page(i)).unzip();
                recycle_bulk(&mut pages);
                names.into_iter().for_each(|at| self.model.give_back(at));
            }
            Call::Frag(owner, len) => self.frag(owner, len),
            Call::DropFrag(i) => {
                if let Some(i) = i.checked_rem(self.frags.len()) {
                    let (page, frag) = self.frags.swap_remove(i);
                    drop(frag);
                    self.model.drop_share(page);
                }
            }
            Call::Freeze(i) => {
                if let Some((at, page)) = self.take_page(i) {
                    self.bytes.push((at, page.freeze()));
                    self.model.shares.push(at);
                }
            }
            Call::FreezeFrag(i) => {
                if let Some(i) = i.checked_rem(self.frags.len()) {
                    let (page, frag) = self.frags.swap_remove(i);
                    self.bytes.push((page, frag.freeze()));
                }
            }
            Call::Part(i) => {
                if let Some(i) = i.checked_rem(self.bytes.len()) {
                    let (page, part) = (self.bytes[i].0, self.bytes[i].1.slice(self.bytes[i].1.len() / 2..));
                    self.bytes.push((page, part));
                    self.model.shares.push(page);
                }
            }
            Call::DropBytes(i) => {
                if let Some(i) = i.checked_rem(self.bytes.len()) {
                    let (page, bytes) = self.bytes.swap_remove(i);
                    drop(bytes);
                    self.model.drop_share(page);
                }
            }
            Call::NewOwner(owner) => {
                self.locals[owner] = self.pool.allocator();
                let old = std::mem::take(&mut self.model.owners[owner]);
                old.cache.into_iter().for_each(|page| self.model.give_back(page));
                if let Some((page, _)) = old.open
                    && !self.model.shares.contains(&page)
                {
                    self.model.give_back(page);
                }
            }
        }
        assert_eq!(self.pool.stats(), self.model.stats, "after {call:?}");
        assert_eq!(self.pool.in_flight(), self.model.in_flight(), "after {call:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_page_and_every_number_is_as_documented(
        shape in shape(),
        calls in prop::collection::vec(call(), 1..120),
        shut_early in any::<bool>(),
    ) {
        let mut world = World::new(&shape);
        calls.iter().for_each(|call| world.run(call));
        let World { pool, mut locals, pages, frags, bytes, .. } = world;
        let drain = if shut_early { Some(pool.shutdown()) } else { None };
        drop((pages, bytes));
        frags.into_iter().rev().for_each(drop);
        prop_assert!(shut_early || pool.in_flight() == 0);
        drain.unwrap_or_else(|| pool.shutdown()).wait();
        prop_assert_eq!((pool.in_flight(), pool.mapped_bytes()), (0, 0));
        prop_assert_eq!(locals[0].alloc().unwrap_err(), AllocError::ShutDown);
    }
}
