//! The pause of a thread that waits without sleeping: it looks again and again for what it waits for.

/// The looks in a row that find nothing, before a thread lets others have its core for a moment.
const LOOKS_BEFORE_YIELD: u32 = 32;

/// Waits a moment before the next look; `looks` counts those that found nothing.
pub(super) fn pause(looks: &mut u32) {
    *looks = looks.wrapping_add(1);
    if looks.is_multiple_of(LOOKS_BEFORE_YIELD) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}
