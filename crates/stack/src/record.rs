//! The recorder: every event goes through here once, into the hash, the per-layer statistics and to any listeners.

use crate::event::{CallId, Event, EventHash, EventSink, What};
use crate::layers::LayerObserver;
use crate::units::Nanos;

/// Where a run's events go.
pub struct Recorder<'s> {
    hash: EventHash,
    layers: LayerObserver,
    sink: Option<&'s mut dyn EventSink>,
}

impl<'s> Recorder<'s> {
    /// A recorder that also feeds `sink`.
    pub fn new(sink: Option<&'s mut dyn EventSink>) -> Recorder<'s> {
        Recorder { hash: EventHash::default(), layers: LayerObserver::default(), sink }
    }

    /// Records one event. Inlined everywhere, because at each place the kind of event is known and all but one arm of
    /// what follows disappears.
    #[inline(always)]
    pub fn event(&mut self, at: Nanos, call: CallId, what: What) {
        let event = Event { at, call, what };
        self.hash.add(&event);
        self.layers.observe(&event);
        if self.sink.is_some() {
            self.tell(event);
        }
    }

    #[cold]
    fn tell(&mut self, event: Event) {
        if let Some(sink) = &mut self.sink {
            sink.event(&event);
        }
    }

    /// The hash and the statistics of the whole run, which ended at `end`.
    pub fn finish(self, end: Nanos) -> (EventHash, crate::layers::Layers) {
        (self.hash, self.layers.finish(end))
    }
}
