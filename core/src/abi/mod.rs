//! The host's side of the plugin ABI: the one [`HostV1`](ortolan_ep_abi::raw::HostV1) table, what stands behind a call, and handles.
//!
//! Everything that comes from a plugin is checked here once: kind of call, thread, indices, types, sizes, answers. A
//! misuse becomes a coded error of the call, never undefined behaviour of the host, as far as that can be told from
//! inside (a pointer to memory that is not there cannot). No graph and no plan is known here.

mod accept;
mod claims;
mod compiling;
mod copy;
mod ctx;
mod devices;
mod fence;
mod handle;
mod out;
mod space;
mod table;

pub(crate) use accept::{Giver, Release, accept};
pub use claims::Rejection;
pub(crate) use claims::{Answer, Answers, Claims};
pub(crate) use compiling::{Compiling, Ports};
pub(crate) use copy::{Copying, copy};
pub(crate) use ctx::{Ctx, Kind, Refusal, RunSink, Setup, code_of};
pub use devices::{DeviceInfo, DeviceList, NoDevice};
pub(crate) use fence::{EVENTS, Fence, Kernel};
pub use handle::{EpHandle, FactoryHandle};
pub(crate) use handle::{PartHandle, raw_tensor};
pub use space::{space, space_name};
pub use table::host_table;
pub(crate) use table::now;

/// Longest sentence of a plugin that is kept, in bytes.
const SENTENCE: usize = 400;

/// A plugin's text: copied, cut at a character.
pub(crate) fn sentence(text: ortolan_ep_abi::raw::Str) -> String {
    // SAFETY: the ABI makes the plugin pass live text; null and non-UTF-8 are taken care of.
    let text = unsafe { text.as_str() };
    if text.len() <= SENTENCE {
        return text.to_owned();
    }
    let mut end = SENTENCE - '…'.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}
