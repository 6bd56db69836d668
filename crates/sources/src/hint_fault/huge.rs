//! Hint faults of huge pages, from the array in which the program leaves them.

use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;
use pghot_engine::Place;
use pghot_engine::demoter::HugeFault;
use pghot_hotness::mirror;

mirror! {
    /// A place for a fault; a program may be writing it.
    pub(crate) struct HugeFaultSlot = "huge_fault" {
        number: AtomicU64,
        address: AtomicU64,
        since_mark_us: AtomicU64,
        who: AtomicU64,
    }
}

/// The array, with how far it was read.
pub(super) struct HugeFaults {
    memory: MmapMut,
    taken: u64,
}

impl HugeFaults {
    /// Of the program's map `huge_faults`.
    pub fn new(memory: MmapMut) -> HugeFaults {
        HugeFaults { memory, taken: 0 }
    }

    /// Those since the last call. What was overwritten since is lost, and so is what is being
    /// written now.
    pub fn take(&mut self) -> Vec<HugeFault> {
        // SAFETY: the mapping is page-aligned and as long as it says; programs write it while it
        // is read here, both by aligned 64-bit accesses.
        let slots = unsafe {
            std::slice::from_raw_parts(
                self.memory.as_ptr().cast::<HugeFaultSlot>(),
                self.memory.len() / size_of::<HugeFaultSlot>(),
            )
        };
        let Some((head, slots)) = slots.split_first() else {
            return Vec::new();
        };
        let count = head.number.load(Ordering::Acquire);
        let kept = slots.len() as u64;
        let first = self.taken.max(count.saturating_sub(kept));
        self.taken = count;
        let slots = (first + 1..=count).map(|number| (number, &slots[(number % kept) as usize]));
        slots
            .filter_map(|(number, slot)| slot.read(number))
            .collect()
    }
}

impl HugeFaultSlot {
    /// None if it holds another fault, before or after.
    fn read(&self, number: u64) -> Option<HugeFault> {
        let is_whole = || self.number.load(Ordering::Acquire) == number;
        if !is_whole() {
            return None;
        }
        let [address, since_mark_us, who] =
            [&self.address, &self.since_mark_us, &self.who].map(|it| it.load(Ordering::Acquire));
        let above = u8::try_from((who >> 32).checked_sub(1).unwrap_or(u64::MAX)).ok();
        is_whole().then(|| HugeFault {
            place: Place::in_process(who as u32, address),
            above: above.map(Into::into),
            since_mark_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u64 = 5;

    /// As the program does it.
    fn write(faults: &HugeFaults, number: u64, who: u64) {
        let slots = faults.memory.as_ptr().cast::<HugeFaultSlot>();
        // SAFETY: of the slots of the mapping.
        let (head, slot) = unsafe { (&*slots, &*slots.add(1 + (number % (SLOTS - 1)) as usize)) };
        head.number.store(number, Ordering::Release);
        slot.address.store(number << 21, Ordering::Relaxed);
        slot.since_mark_us.store(10 * number, Ordering::Relaxed);
        slot.who.store(who, Ordering::Relaxed);
        slot.number.store(number, Ordering::Release);
    }

    #[test]
    fn faults_are_taken_once_and_the_newest_are_kept() {
        let memory = MmapMut::map_anon(SLOTS as usize * size_of::<HugeFaultSlot>()).unwrap();
        let mut faults = HugeFaults::new(memory);
        assert!(faults.take().is_empty());
        write(&faults, 1, 7);
        write(&faults, 2, 3 << 32 | 7);
        let fault = |number: u64, above| HugeFault {
            place: Place::in_process(7, number << 21),
            above,
            since_mark_us: 10 * number,
        };
        assert_eq!(faults.take(), [fault(1, None), fault(2, Some(2))]);
        assert!(faults.take().is_empty());
        (3..=8).for_each(|number| write(&faults, number, 7));
        let newest: Vec<_> = (5..=8).map(|number| fault(number, None)).collect();
        assert_eq!(faults.take(), newest);
    }
}
