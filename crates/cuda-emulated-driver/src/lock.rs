//! Locks that a panic of another thread does not poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
