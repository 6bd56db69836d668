//! QEMU's side: the plugin interface, version 2 (QEMU 9.0; 10.0 takes it as well).
//!
//! Every memory access of a user-mode instruction is called back. What does not count returns after
//! a few comparisons. If everything counts, all code is translated anew at the start of the phase,
//! with callbacks in the kernel's too: it reads the page cache for those who ask. Before and after,
//! kernel code runs at full speed.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pghot_witness::layout::PAGE_BYTES;
use pghot_witness::marks::{MARKS, Mark, REGION, REGION_MAX_BYTES};
use pghot_witness::options::Options;
use pghot_witness::witness::Witness;

/// The version of the interface that this plugin speaks.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 2;

type PluginId = u64;
type MemInfo = u32;
type Callback = extern "C" fn(vcpu: c_uint, info: MemInfo, address: u64, data: *mut c_void);

/// `QEMU_PLUGIN_CB_NO_REGS`: the callback reads no registers.
const NO_REGS: c_int = 0;
/// `QEMU_PLUGIN_MEM_RW`: loads and stores.
const LOADS_AND_STORES: c_int = 3;

/// User-mode addresses of x86-64 with four-level page tables; programs stay there unless they ask.
const USER_END: u64 = 1 << 47;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: PluginId,
        callback: extern "C" fn(PluginId, *mut c_void),
    );
    fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const c_void, index: usize) -> *mut c_void;
    fn qemu_plugin_insn_vaddr(instruction: *const c_void) -> u64;
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut c_void,
        callback: Callback,
        flags: c_int,
        which: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_mem_is_store(info: MemInfo) -> bool;
    fn qemu_plugin_get_hwaddr(info: MemInfo, address: u64) -> *mut c_void;
    fn qemu_plugin_hwaddr_is_io(address: *const c_void) -> bool;
    fn qemu_plugin_hwaddr_phys_addr(address: *const c_void) -> u64;
    fn qemu_plugin_reset(id: PluginId, callback: extern "C" fn(PluginId));
    fn qemu_plugin_register_atexit_cb(
        id: PluginId,
        callback: extern "C" fn(PluginId, *mut c_void),
        data: *mut c_void,
    );
}

static WITNESS: OnceLock<Witness> = OnceLock::new();
static ID: OnceLock<PluginId> = OnceLock::new();

/// Whether code that is translated now gets callbacks in kernel mode too.
static HAS_KERNEL: AtomicBool = AtomicBool::new(false);

extern "C" fn on_access(vcpu: c_uint, info: MemInfo, address: u64, _: *mut c_void) {
    let offset = address.wrapping_sub(REGION);
    let page = (offset < REGION_MAX_BYTES).then_some((offset / PAGE_BYTES) as usize);
    let is_mark = address & !(PAGE_BYTES - 1) == MARKS;
    let Some(witness) = WITNESS.get() else { return };
    if !is_mark && !witness.counts(vcpu as usize, page.is_some()) {
        return;
    }
    // SAFETY: QEMU gave `info` to this callback.
    let is_store = unsafe { qemu_plugin_mem_is_store(info) };
    if is_mark {
        if let (true, Some(mark)) = (is_store, Mark::at(address)) {
            witness.mark(mark);
            if witness.is_everywhere() && mark != Mark::Slice {
                translate_anew(mark == Mark::Start);
            }
        }
        return;
    }
    // SAFETY: as above; QEMU's answer is its own and lives until the next question of this thread.
    let physical = unsafe {
        let answer = qemu_plugin_get_hwaddr(info, address);
        (!answer.is_null() && !qemu_plugin_hwaddr_is_io(answer))
            .then(|| qemu_plugin_hwaddr_phys_addr(answer))
    };
    witness.access(vcpu as usize, page, physical, is_store);
}

/// Has QEMU forget all translated code, as soon as no vCPU runs any.
fn translate_anew(has_kernel: bool) {
    HAS_KERNEL.store(has_kernel, Ordering::Relaxed);
    if let Some(id) = ID.get() {
        // SAFETY: the id that QEMU gave us. Callbacks are gone then, and `register` brings them
        // back.
        unsafe { qemu_plugin_reset(*id, register) };
    }
}

extern "C" fn register(id: PluginId) {
    // SAFETY: the callbacks are of the types that version 2 of the interface has.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
        qemu_plugin_register_atexit_cb(id, on_exit, std::ptr::null_mut());
    }
}

extern "C" fn on_translation(_: PluginId, block: *mut c_void) {
    let has_kernel = HAS_KERNEL.load(Ordering::Relaxed);
    // SAFETY: QEMU gave `block` to this callback; the indices are below its number of instructions.
    unsafe {
        for index in 0..qemu_plugin_tb_n_insns(block) {
            let instruction = qemu_plugin_tb_get_insn(block, index);
            if has_kernel || qemu_plugin_insn_vaddr(instruction) < USER_END {
                let nothing = std::ptr::null_mut();
                qemu_plugin_register_vcpu_mem_cb(
                    instruction,
                    on_access,
                    NO_REGS,
                    LOADS_AND_STORES,
                    nothing,
                );
            }
        }
    }
}

extern "C" fn on_exit(_: PluginId, _: *mut c_void) {
    if let Some(witness) = WITNESS.get() {
        witness.end();
    }
}

/// QEMU calls this once, when it loads the plugin.
///
/// # Safety
/// `arguments` must point to `count` strings that end in 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    _info: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let argument = |i| {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(*arguments.add(i)) }
    };
    let arguments = (0..count.max(0) as usize).map(argument);
    let arguments: Vec<&str> = arguments.map(|a| a.to_str().unwrap_or("?")).collect();
    let witness = match Options::parse(arguments).and_then(Witness::new) {
        Ok(witness) => witness,
        Err(problem) => {
            eprintln!("witness: {problem}");
            return -1;
        }
    };
    if WITNESS.set(witness).is_err() || ID.set(id).is_err() {
        eprintln!("witness: it is loaded twice");
        return -1;
    }
    register(id);
    0
}
