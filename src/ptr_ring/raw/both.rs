//! What needs both ends of a queue: putting back beyond what is not cleared, and moving to another queue.

use super::{Consumer, NONE, Pointer, Producer, Publish};
use crate::sync::Ordering;

/// Both ends of one queue, for what needs both.
pub(in crate::ptr_ring) struct Both<'a, P: Pointer> {
    producer: &'a mut Producer<P>,
    consumer: &'a mut Consumer<P>,
}

impl<'a, P: Pointer> Both<'a, P> {
    /// # Panics
    /// If the handles are not of one queue.
    pub(in crate::ptr_ring) fn new(producer: &'a mut Producer<P>, consumer: &'a mut Consumer<P>) -> Self {
        assert!(producer.header == consumer.header, "two ends of one queue");
        Self { producer, consumer }
    }

    /// Elements in the queue.
    pub(in crate::ptr_ring) fn len(&self) -> usize {
        self.producer.produced().wrapping_sub(self.consumer.consumed())
    }

    /// As [`Consumer::unconsume`], and beyond what is not cleared yet, as far as there is room.
    pub(in crate::ptr_ring) fn unconsume(&mut self, batch: &mut Vec<P>, to: &impl Publish) {
        let mut room = self.consumer.capacity() - self.len();
        let (shape, consumer) = (self.consumer.shape, &mut *self.consumer);
        consumer.clear::<false>(consumer.tail, consumer.head);
        while room > 0
            && let Some(p) = batch.pop()
        {
            if consumer.head == 0 {
                consumer.head = shape.capacity;
                consumer.lap = consumer.lap.wrapping_sub(shape.capacity);
            }
            consumer.head -= 1;
            room -= 1;
            // Relaxed: the caller holds both ends, and whoever gets either from it synchronises with it for that.
            // SAFETY: 1. it was in `1..=capacity` before the subtraction.
            unsafe { consumer.slot(consumer.head) }.store(p.into_raw().as_ptr(), Ordering::Relaxed);
        }
        consumer.tail = consumer.head;
        consumer.flush_at = shape.flush_end(consumer.head);
        to.consumed(consumer.consumed());
        to.cleared(consumer.consumed());
        // Now `room` slots from the producer's index on are null, and the oldest element may lie inside of a batch. The
        // producer must not get that batch as a whole from its first slot, hence the seam; when it comes to the seam,
        // the next clearing begins there (invariant 5): nothing is cleared twice before it has passed.
        let (tail, producer) = (consumer.tail, &mut *self.producer);
        producer.seam = if tail.is_multiple_of(shape.grain) { NONE } else { tail };
        if producer.index < shape.capacity {
            producer.limit = shape.run_end(producer.index).min(producer.index + room);
        }
        producer.edge = shape.run_end(if producer.limit == shape.capacity { 0 } else { producer.limit });
    }

    /// Moves the oldest elements, as many as fit, to the new queue, and makes it count on from here.
    pub(in crate::ptr_ring) fn move_to(&mut self, new: &mut Both<'_, P>) {
        let count = self.consumer.consumed();
        debug_assert!(new.len() == 0 && new.producer.index == 0);
        (new.producer.lap, new.consumer.lap) = (count, count);
        while !new.producer.is_full()
            && let Some(p) = self.consumer.consume(&())
        {
            let placed = new.producer.produce(p);
            debug_assert!(placed.is_ok());
        }
    }
}
