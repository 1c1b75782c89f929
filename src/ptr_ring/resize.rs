//! Changing the capacity of rings in use.
//!
//! New queues are made before any lock is taken, and old ones are emptied and freed after the locks are released. In
//! between, all rings are locked at once, so that the last thing that can fail, room for the elements that will not fit,
//! is known to be there for all of them before the first one changes.
//!
//! First the consumers' locks of all rings, in the order of their addresses, then the producers' locks in the same order.
//! Ring by ring would do for two resizes, but not for a closure of `peek` that produces into another ring: it has a
//! consumer's lock and waits for a producer's.
#![forbid(unsafe_code)]

use super::raw::{self, Both, Publish, Shape};
use super::{CapacityError, Pointer, PtrRing, RawMutex};
use crate::sync::Ordering;
use std::mem::swap;

/// A ring to be resized.
struct Job<P: Pointer> {
    /// Which one of the arguments.
    ring: usize,
    /// Before the change the new queue, afterwards the old one.
    producer: raw::Producer<P>,
    consumer: raw::Consumer<P>,
    /// Has room for the elements that do not fit.
    rest: Vec<P>,
    /// How many there are.
    need: usize,
}

fn out_of_memory(_: std::collections::TryReserveError) -> CapacityError {
    CapacityError::OutOfMemory
}

impl<P: Pointer, L: RawMutex> PtrRing<P, L> {
    /// Changes the capacity, keeps the oldest elements, and returns those that no longer fit, in order.
    ///
    /// # Context
    /// Any thread. Allocates and frees outside the locks; holds both of them while it moves the elements.
    ///
    /// # Panics
    /// In the closure of [`peek`](Self::peek) on the same ring.
    ///
    /// # Errors
    /// As [`new`](PtrRing::new). The ring is as before.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::PtrRing;
    /// let ring = PtrRing::new(8)?;
    /// ring.produce_batch(&mut vec![Box::new(1), Box::new(2), Box::new(3)]);
    /// assert_eq!(ring.resize(2)?, [Box::new(3)]);
    /// assert!(ring.is_full() && ring.capacity() == 2);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn resize(&self, capacity: usize) -> Result<Vec<P>, CapacityError> {
        Ok(Self::resize_many(&[self], capacity)?.pop().expect("one ring, one rest"))
    }

    /// [`resize`](Self::resize) for many rings: all of them, or none.
    ///
    /// The rests come in the order of the rings. A ring that is named twice is resized once, and its second rest is empty.
    ///
    /// # Context
    /// Any thread. Allocates and frees outside the locks; holds both locks of all rings while it moves the elements. First
    /// it takes the consumers' locks, in the order of the rings' addresses, then the producers'.
    ///
    /// # Panics
    /// In the closure of [`peek`](Self::peek) on one of the rings, before any ring is changed.
    ///
    /// # Errors
    /// As [`new`](PtrRing::new). Every ring is as before.
    ///
    /// # Examples
    /// ```
    /// # use percpu_ref::ptr_ring::PtrRing;
    /// let (a, b) = (PtrRing::new(4)?, PtrRing::new(4)?);
    /// a.produce(Box::new(1)).unwrap();
    /// assert_eq!(PtrRing::resize_many(&[&a, &b], 0)?, [vec![Box::new(1)], vec![]]);
    /// # Ok::<(), percpu_ref::ptr_ring::CapacityError>(())
    /// ```
    pub fn resize_many(rings: &[&Self], capacity: usize) -> Result<Vec<Vec<P>>, CapacityError> {
        let mut rests = Vec::new();
        rests.try_reserve_exact(rings.len()).map_err(out_of_memory)?;
        rests.extend(rings.iter().map(|_| Vec::new()));

        let mut jobs = Self::jobs(rings, capacity)?;
        let (mut consumers, mut producers) = (Vec::new(), Vec::new());
        consumers.try_reserve_exact(jobs.len()).map_err(out_of_memory)?;
        producers.try_reserve_exact(jobs.len()).map_err(out_of_memory)?;
        loop {
            consumers.extend(jobs.iter().map(|job| rings[job.ring].consumer.lock()));
            producers.extend(jobs.iter().map(|job| rings[job.ring].producer.lock()));
            for ((job, consumer), producer) in jobs.iter_mut().zip(&mut consumers).zip(&mut producers) {
                job.need = Both::new(producer, consumer).len().saturating_sub(capacity);
            }
            if jobs.iter().all(|job| job.need <= job.rest.capacity()) {
                break;
            }
            producers.clear();
            consumers.clear();
            for job in &mut jobs {
                job.rest.try_reserve_exact(job.need).map_err(out_of_memory)?;
            }
        }

        for ((job, consumer), producer) in jobs.iter_mut().zip(&mut consumers).zip(&mut producers) {
            Both::new(producer, consumer).move_to(&mut Both::new(&mut job.producer, &mut job.consumer));
            swap(&mut **producer, &mut job.producer);
            swap(&mut **consumer, &mut job.consumer);
            let ring = rings[job.ring];
            ring.capacity.store(capacity, Ordering::Relaxed);
            ring.consumer.cleared(consumer.consumed());
        }
        // Publishes the other counts.
        drop(producers);
        drop(consumers);

        for mut job in jobs {
            while let Some(p) = job.consumer.consume(&()) {
                job.rest.push(p);
            }
            rests[job.ring] = job.rest;
        }
        Ok(rests)
    }

    /// What is to be done, each ring once, in the order of the addresses, with all queues made.
    fn jobs(rings: &[&Self], capacity: usize) -> Result<Vec<Job<P>>, CapacityError> {
        let address = |ring: &usize| std::ptr::from_ref(rings[*ring]).addr();
        let mut order = Vec::new();
        order.try_reserve_exact(rings.len()).map_err(out_of_memory)?;
        order.extend(0..rings.len());
        order.sort_unstable_by_key(|ring| (address(ring), *ring));
        order.dedup_by_key(|ring| address(ring));
        let mut jobs = Vec::new();
        jobs.try_reserve_exact(order.len()).map_err(out_of_memory)?;
        for ring in order {
            let Self { clearing, head_first, .. } = *rings[ring];
            let (producer, consumer) = raw::pair(Shape::new(capacity, clearing, head_first)?)?;
            jobs.push(Job { ring, producer, consumer, rest: Vec::new(), need: 0 });
        }
        Ok(jobs)
    }
}
