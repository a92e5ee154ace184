//! Returns free memory of this process's allocator to the system.

/// Returns memory that the allocator keeps free to the system (malloc_trim(3)). Other allocators
/// than glibc's do so by themselves.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes no pointer, and any thread may call it at any time (attributes(7)).
    unsafe {
        libc::malloc_trim(0);
    }
}
