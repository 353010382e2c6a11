//! The namespaces that this relay has to register, and which of them have changed.

use std::collections::BTreeSet;

use weir_moqt::name::Namespace;

/// What the event loop wants to be registered, until the thread of the registry has written it.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    namespaces: BTreeSet<Namespace>,
    /// Namespaces that came or went since the last [`take_changes`](Self::take_changes); `None` if everything has to be compared.
    changed: Option<BTreeSet<Namespace>>,
}

/// What has to be written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) new: Vec<Namespace>,
    pub(super) gone: Vec<Namespace>,
}

impl Wanted {
    pub(super) fn register(&mut self, namespace: &Namespace) {
        if self.namespaces.insert(namespace.clone()) {
            self.note(namespace);
        }
    }

    pub(super) fn withdraw(&mut self, namespace: &Namespace) {
        if self.namespaces.remove(namespace) {
            self.note(namespace);
        }
    }

    fn note(&mut self, namespace: &Namespace) {
        if let Some(changed) = &mut self.changed {
            changed.insert(namespace.clone());
            if changed.len() > CHANGES_MAX {
                self.changed = None;
            }
        }
    }

    /// Returns what differs from the namespaces that are `written`. Costs as much as there are changes, and not as there are
    /// namespaces, if everything was taken before.
    pub(super) fn take_changes(&mut self, written: &BTreeSet<Namespace>) -> Changes {
        let Some(changed) = self.changed.replace(BTreeSet::new()) else {
            return Changes {
                new: self.namespaces.difference(written).cloned().collect(),
                gone: written.difference(&self.namespaces).cloned().collect(),
            };
        };
        let mut changes = Changes::default();
        for namespace in changed {
            match (
                self.namespaces.contains(&namespace),
                written.contains(&namespace),
            ) {
                (true, false) => changes.new.push(namespace),
                (false, true) => changes.gone.push(namespace),
                (true, true) | (false, false) => {}
            }
        }
        changes
    }

    /// Returns all namespaces, which are written again whatever was written before, and those that are written and not wanted
    /// any more.
    pub(super) fn take_all(&mut self, written: &BTreeSet<Namespace>) -> Changes {
        self.changed = Some(BTreeSet::new());
        Changes {
            new: self.namespaces.iter().cloned().collect(),
            gone: written.difference(&self.namespaces).cloned().collect(),
        }
    }
}

/// Changes that are noted one by one.
const CHANGES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn space(number: usize) -> Namespace {
        Namespace::new([format!("n{number}")]).unwrap()
    }

    #[test]
    fn changes_are_taken_once_and_cancel_each_other() {
        let mut wanted = Wanted::default();
        let mut written = BTreeSet::new();
        wanted.register(&space(1));
        wanted.register(&space(2));
        let both = vec![space(1), space(2)];
        let changes = |new: &[Namespace], gone: &[Namespace]| Changes {
            new: new.to_vec(),
            gone: gone.to_vec(),
        };
        assert_eq!(wanted.take_all(&written), changes(&both, &[]));
        written.extend(both);
        assert_eq!(wanted.take_changes(&written), Changes::default());
        // One comes and goes before it is written, one goes and comes back.
        wanted.register(&space(3));
        wanted.withdraw(&space(3));
        wanted.withdraw(&space(1));
        wanted.register(&space(1));
        wanted.withdraw(&space(2));
        wanted.register(&space(4));
        let expected = changes(&[space(4)], &[space(2)]);
        assert_eq!(wanted.take_changes(&written), expected);
        assert_eq!(wanted.take_changes(&written), Changes::default());
        let all = changes(&[space(1), space(4)], &[space(2)]);
        assert_eq!(wanted.take_all(&written), all);
    }

    #[test]
    fn more_changes_than_are_noted_are_found_by_comparison() {
        for count in [CHANGES_MAX, CHANGES_MAX + 1] {
            let mut wanted = Wanted::default();
            wanted.take_all(&BTreeSet::new());
            for number in 0..count {
                wanted.register(&space(number));
            }
            assert_eq!(wanted.changed.is_some(), count <= CHANGES_MAX);
            for number in 0..count - 1 {
                wanted.withdraw(&space(number));
            }
            let changes = wanted.take_changes(&BTreeSet::from([space(0)]));
            assert_eq!(changes.new, [space(count - 1)]);
            assert_eq!(changes.gone, [space(0)]);
        }
    }
}
