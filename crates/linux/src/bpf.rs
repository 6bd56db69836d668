//! Small steps around libbpf that every BPF object here needs: finding maps and programs by name,
//! setting constants, mapping an array.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::btf::{Btf, types::Func};
use libbpf_rs::{
    MapCore, MapHandle, MapMut, Object, OpenMapMut, OpenObject, PrintLevel, ProgramInput,
    ProgramMut, set_print,
};
use memmap2::{MmapMut, MmapOptions};
use pghot_hotness::mirror;
use tracing::debug;

use crate::SysRoot;

/// Sends what libbpf prints to the log, at level debug: errors that matter come back as values, and
/// the verifier's pages of text are for who writes BPF programs.
pub fn log_messages() {
    set_print(Some((PrintLevel::Info, |_, message| {
        debug!("libbpf: {}", message.trim_end());
    })));
}

/// Whether the running kernel has a function that programs can call or be attached to; `None`
/// without BTF.
pub fn has_function(root: &SysRoot, name: &str) -> Option<bool> {
    let btf = Btf::from_path(root.sys.join("kernel/btf/vmlinux")).ok()?;
    Some(btf.type_by_name::<Func<'_>>(name).is_some())
}

/// The map of an object that is not loaded yet. The name is that in the C source, except that
/// libbpf calls global variables `.rodata`, `.bss` and `.data`.
///
/// # Panics
///
/// If the object has no such map: object and caller are built together.
pub fn open_map<'a>(object: &'a mut OpenObject, name: &str) -> OpenMapMut<'a> {
    let found = object
        .maps_mut()
        .find(|m| m.name().to_str().is_some_and(|n| is_map(n, name)));
    found.unwrap_or_else(|| panic!("the BPF object has no map `{name}`"))
}

/// The map of a loaded object; see [`open_map`].
pub fn map<'a>(object: &'a mut Object, name: &str) -> MapMut<'a> {
    let found = object
        .maps_mut()
        .find(|m| m.name().to_str().is_some_and(|n| is_map(n, name)));
    found.unwrap_or_else(|| panic!("the BPF object has no map `{name}`"))
}

/// libbpf puts the object's name before the name of a section.
fn is_map(actual: &str, wanted: &str) -> bool {
    actual == wanted || wanted.starts_with('.') && actual.ends_with(wanted)
}

/// The program of a loaded object.
///
/// # Panics
///
/// If the object has no such program: object and caller are built together.
pub fn program<'a>(object: &'a Object, name: &str) -> ProgramMut<'a> {
    let found = object.progs_mut().find(|p| p.name() == name);
    found.unwrap_or_else(|| panic!("the BPF object has no program `{name}`"))
}

mirror! {
    /// What `find_layout()` returns.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LayoutResult = "layout_result", "LAYOUT_" {
        /// The object knows where the kernel keeps its page structs.
        Found,
        /// The kernel does not tell.
        Hidden,
    }
}

/// Has a loaded object that includes `layout.bpf.h` find where the kernel keeps its page structs.
/// False if the kernel hides that: then the object is of no use.
pub fn find_layout(object: &Object) -> Result<bool, libbpf_rs::Error> {
    let output = program(object, "find_layout").test_run(ProgramInput::default())?;
    Ok(LayoutResult::of_number(output.return_value) == Some(LayoutResult::Found))
}

/// Runs of all programs of an object and the time in them, in ns, as far as the kernel counts them
/// (`kernel.bpf_stats_enabled`, since 5.1).
pub fn run_cost(object: &Object) -> (u64, u64) {
    let costs = object.progs().map(|program| {
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut length = size_of_val(&info) as u32;
        // SAFETY: the kernel writes at most `length` bytes of plain numbers to `info`, whose
        // pointers and counts are all zero: it asks for no array.
        let error = unsafe {
            libbpf_sys::bpf_obj_get_info_by_fd(
                program.as_fd().as_raw_fd(),
                (&raw mut info).cast(),
                &mut length,
            )
        };
        // A program that was loaded answers; if not, it has no cost to show.
        if error == 0 {
            (info.run_cnt, info.run_time_ns)
        } else {
            (0, 0)
        }
    });
    costs.fold((0, 0), |sum, cost| (sum.0 + cost.0, sum.1 + cost.1))
}

/// A handle of a map that outlives the borrow of its object.
pub fn handle(object: &mut Object, name: &str) -> Result<MapHandle, libbpf_rs::Error> {
    MapHandle::try_from(&map(object, name))
}

/// Maps all of an mmapable array. Its elements must be multiples of 8 bytes.
pub fn map_memory(map: &MapHandle) -> io::Result<MmapMut> {
    let bytes = map.value_size() as usize * map.max_entries() as usize;
    let file = File::from(map.as_fd().try_clone_to_owned()?);
    // SAFETY: the memory belongs to a map that only this process and its BPF programs see, and
    // the mapping keeps the map alive. Callers read it as atomics or after the program has run.
    unsafe { MmapOptions::new().len(bytes).map_mut(&file) }
}

/// A loaded `syscall` program (since 5.14) that any thread may call. It keeps the program, and with
/// it the maps that it uses.
pub struct Callable(OwnedFd);

impl Callable {
    /// The program of a loaded object; see [`program`].
    pub fn of(object: &Object, name: &str) -> io::Result<Callable> {
        let program = program(object, name).as_fd().try_clone_to_owned()?;
        Ok(Callable(program))
    }

    /// Runs it with the bytes of its argument, which it may change, and returns what it returned.
    pub fn call(&self, context: &mut [u8]) -> io::Result<u32> {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            ctx_in: context.as_mut_ptr().cast(),
            ctx_size_in: context.len() as u32,
            ..Default::default()
        };
        // SAFETY: the kernel reads and writes `ctx_size_in` bytes at `ctx_in`, which are `context`,
        // and otherwise only `options`.
        let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), &mut options) };
        match error {
            0 => Ok(options.retval),
            // libbpf returns the negated error number.
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}
