//! Codes of the plugin host, in the order of its checks. A pure list: exempt from the limit on lines.

crate::codes::codes! {
    // ---- asking for an EP
    EP_REQUEST = "ep-request", "0.1.0", "Not a request for an EP",
        "An execution provider is asked for as NAME or NAME@REQUIREMENT, where the requirement is a semver one such as ^1.2.",
        "Write the request as in `cpu` or `cpu@>=1.2, <2`.";
    EP_NOT_FOUND = "ep-not-found", "0.1.0", "No library of that name",
        "None of the places that were searched holds a library whose manifest has this name.",
        "Install the EP, or point to its library or folder with --ep-path or ORTOLAN_EP_PATH; `ortolan ep list` shows the places.";
    NO_MATCHING_VERSION = "no-matching-version", "0.1.0", "No version satisfies the request",
        "Libraries of this name were found, but none in a version that the request allows.",
        "Install a version that the request allows, or loosen the request.";
    DUPLICATE_VERSION = "duplicate-version", "0.1.0", "Two files, one name and version",
        "Two different files in one place claim to be the same version of the same EP, so it cannot be said which one would run.",
        "Remove one of the two files, or name the wanted one alone with --ep-path.";
    NAME_TAKEN = "name-taken", "0.1.0", "Another library already serves the name",
        "An EP of this name is already loaded from elsewhere; one name is one EP in a host.",
        "Unregister the loaded one first, or use a host of its own.";
    NOT_LOADED = "not-loaded", "0.1.0", "No such EP is loaded",
        "The request names an EP that this host has not loaded.",
        "Load it first.";
    IN_USE = "in-use", "0.1.0", "The EP is still in use",
        "Something still holds the EP: a session, a value in its memory or a handle. It is not taken away under them.",
        "Drop the sessions, values and handles of this EP, then unregister it again.";
    // ---- 1: the file
    FILE_NOT_FOUND = "file-not-found", "0.1.0", "No such file",
        "The path that was given leads to nothing.",
        "Check the path for typing errors and dangling links.";
    FILE_UNREADABLE = "file-unreadable", "0.1.0", "The file cannot be read",
        "The path leads to something that is no regular file, or that this user may not read.",
        "Give this user permission to read the file, and name a file, not a folder or device.";
    WORLD_WRITABLE = "world-writable", "0.1.0", "Anyone may replace it",
        "The library, or the folder that holds it, may be written by every user of the machine, so anyone could have put the code there.",
        "Take the permission away with `chmod o-w` on the file and on its folder, or move the library.";
    FOREIGN_OWNER = "foreign-owner", "0.1.0", "It belongs to another user",
        "The library or its folder belongs to a user who is neither this one nor root. A warning, and a refusal in strict mode.",
        "Install the library as this user or as root, or leave strict mode off if the owner is trusted.";
    // ---- 2: the image
    NOT_A_LIBRARY = "not-a-library", "0.1.0", "Not a shared library",
        "The file is no shared library of any known format: text, an empty file, an object file or a program.",
        "Name the plugin's shared library; if it was downloaded, check that the download is not an error page.";
    WRONG_MACHINE = "wrong-machine", "0.1.0", "Built for another machine or system",
        "The file is a shared library for another processor or operating system.",
        "Get the build of the plugin for this machine.";
    TRUNCATED = "truncated", "0.1.0", "The file ends too early",
        "A part of the library that its headers promise lies behind the end of the file. Opening it would crash the process.",
        "Copy or download the library again.";
    MALFORMED_LIBRARY = "malformed-library", "0.1.0", "Headers contradict themselves",
        "The headers of the library hold sizes or counts that cannot be right.",
        "Build or download the library again.";
    // ---- 3: manifest and catalogue
    NO_MANIFEST = "no-manifest", "0.1.0", "Not an execution-provider plugin",
        "The file is a shared library, but has no section with a manifest of an execution provider.",
        "Name a plugin that was built with `export_ep!` or, in C, with the manifest section of the header.";
    MANIFEST_INVALID = "manifest-invalid", "0.1.0", "The manifest cannot be read",
        "The manifest in the file is not the JSON object that it should be, or a field is missing or of the wrong kind.",
        "The plugin's author has to correct the manifest; `ortolan ep verify FILE` names the field.";
    MANIFEST_FORMAT = "manifest-format", "0.1.0", "Unknown manifest format",
        "The manifest says that it has a format that this core does not know.",
        "Use a newer core, or an older version of the plugin.";
    CATALOGUE_INVALID = "catalogue-invalid", "0.1.0", "The operator catalogue cannot be read",
        "A row of the operator catalogue in the file breaks the format of the catalogue.",
        "The plugin's author has to correct the catalogue; the sentence names the row.";
    CATALOGUE_HASH = "catalogue-hash", "0.1.0", "The operator catalogue was changed",
        "The operator catalogue in the file does not have the hash that the manifest states: one of the two was edited after the build.",
        "Install the plugin again from its source.";
    // ---- 4: the ABI
    ABI_MAJOR = "abi-major", "0.1.0", "Another major version of the ABI",
        "Plugin and core speak different major versions of the plugin ABI.",
        "Get the plugin built for this core's ABI, or the core for the plugin's.";
    ABI_MINOR = "abi-minor", "0.1.0", "A minor version that is not served",
        "The plugin's minor version of the ABI lies outside the range that this host serves.",
        "Get a version of the plugin inside the range, or change the host's range.";
    // ---- 5: what the manifest asks for
    CORE_VERSION = "core-version", "0.1.0", "The plugin asks for another core",
        "The plugin's `requires_core` is not satisfied by the version of this core.",
        "Use a core that satisfies it, or a version of the plugin that asks for this one.";
    NEEDS_INTERFACE = "needs-interface", "0.1.0", "The core lacks an interface",
        "The plugin cannot run without a host interface that this core does not serve.",
        "Use a newer core, or an older version of the plugin.";
    NO_INTERFACE = "no-interface", "0.1.0", "The plugin lacks an interface",
        "The plugin does not serve the table that every execution provider must serve, or one that its manifest promises.",
        "The plugin's author has to correct `provides` or `query`.";
    WRONG_TARGET = "wrong-target", "0.1.0", "Built for another target",
        "The target in the manifest is not the one that this core was built for (C library and system included).",
        "Get the build of the plugin for this target.";
    CPU_FEATURE = "cpu-feature", "0.1.0", "The processor lacks a feature",
        "The whole library was compiled for processor features that this machine does not have.",
        "Get a build for an older processor, or run on a machine that has the features.";
    PANIC_ABORT = "panic-abort", "0.1.0", "Built with panic=abort",
        "A panic in this plugin would end the whole process, because it was built with panic=abort.",
        "Build the plugin with panic=unwind.";
    SCHEMA_DIFFERS = "schema-differs", "0.1.0", "Built for another definition of an operator",
        "The plugin was built against a different definition of an operator than the core has. Only that operator is set aside.",
        "Use a version of the plugin that was built for this core's definitions.";
    // ---- 6: the probe
    PROBE_CRASHED = "probe-crashed", "0.1.0", "It crashes when loaded",
        "The library was loaded in a child process first, and the child died by a signal. It is not loaded into this process.",
        "Reinstall the plugin and what it depends on; `ortolan ep verify FILE` probes it again.";
    PROBE_HUNG = "probe-hung", "0.1.0", "It hangs when loaded",
        "The library was loaded in a child process first, and the child did not finish in time. It is not loaded into this process.",
        "Reinstall the plugin and what it depends on, or allow more time; `ortolan ep verify FILE` probes it again.";
    PROBE_UNAVAILABLE = "probe-unavailable", "0.1.0", "There is no helper to probe with",
        "The helper `ortolan-probe` that loads unknown libraries in a child process is missing, cannot be started or belongs to another core.",
        "Install `ortolan-probe` beside the program or the core library, or choose a probe policy that does without.";
    // ---- 7: opening
    MISSING_LIBRARY = "missing-library", "0.1.0", "Shared libraries are missing",
        "Shared libraries that the plugin depends on, directly or through others, were not found. All that are missing are named.",
        "Install the named libraries, or add their folder to the system's library path.";
    UNDEFINED_SYMBOL = "undefined-symbol", "0.1.0", "A symbol is missing",
        "The plugin uses a function or variable that none of its libraries has; mostly one of them is older or newer than the plugin needs.",
        "Install the version of the library that the plugin was built with.";
    OPEN_FAILED = "open-failed", "0.1.0", "The system refused to open it",
        "The system's loader refused the library for a reason of its own, which is in the sentence.",
        "The reason says what to do; reinstalling the plugin helps where the file is damaged.";
    CHANGED_WHILE_LOADING = "changed-while-loading", "0.1.0", "The file changed meanwhile",
        "The file that was opened is not the one that was checked: somebody replaced or wrote it in between.",
        "Wait until the installation is finished, then start the program again.";
    // ---- 8: the entry
    ENTRY_MISSING = "entry-missing", "0.1.0", "No entry symbol",
        "The library has a manifest but does not export the entry symbol `ortolan_ep_entry_v1`.",
        "The plugin's author has to export the entry; link options that hide symbols are the usual cause.";
    ENTRY_MAGIC = "entry-magic", "0.1.0", "The entry is something else",
        "The entry symbol does not lead to an entry: its first bytes are wrong.",
        "The plugin's author has to export the entry static of the header unchanged.";
    ENTRY_SIZE = "entry-size", "0.1.0", "The entry is too small",
        "The entry says that it is smaller than the entry of this ABI version.",
        "Build the plugin with the header or crate of the ABI version that its manifest states.";
    FINGERPRINT = "fingerprint", "0.1.0", "Layouts differ",
        "Plugin and core state the same ABI version, but their tables are laid out differently: one was built from changed declarations.",
        "Build the plugin with the published header or crate of its ABI version.";
    MANIFEST_DIFFERS = "manifest-differs", "0.1.0", "Memory and file tell different things",
        "The manifest, catalogue or ABI version in the loaded entry is not the one in the file's sections that was checked.",
        "Install the plugin again; the author must make both from one text.";
    // ---- 9: the layout proof
    LAYOUT_HEADER = "layout-header", "0.1.0", "The layout proof cannot be read",
        "The plugin carries a layout proof of another version of abi_stable, or one that leads to other tables than its entry.",
        "Build the plugin with the published crate of its ABI version.";
    LAYOUT = "layout", "0.1.0", "A field differs",
        "The field by field comparison of the plugin's tables with the core's found differences; the sentence names the first of them.",
        "Build the plugin with the published crate of its ABI version.";
    // ---- 10: the table
    TABLE_SIZE = "table-size", "0.1.0", "The table is too small",
        "The plugin's table says that it is smaller than its interface demands, or is not aligned.",
        "Build the plugin with the header or crate of the ABI version that its manifest states.";
    NULL_SLOT = "null-slot", "0.1.0", "A function is missing",
        "The plugin's table has null where its interface demands a function.",
        "The plugin's author has to fill the slot.";
    // ---- 11: the factory
    FACTORY_FAILED = "factory-failed", "0.1.0", "The plugin refused to start",
        "The plugin's factory could not be made; its own words are in the sentence.",
        "The plugin's words say what to do.";
    // ---- 12: devices
    DEVICES_FAILED = "devices-failed", "0.1.0", "Devices cannot be listed",
        "The plugin failed while it listed its devices, or listed the same number twice; its own words are in the sentence.",
        "The plugin's words say what to do.";
    NO_CAUSE = "no-cause", "0.1.0", "No devices and no reason",
        "The plugin has no device and does not say why, which every plugin must.",
        "Report it to the plugin's author.";
    NO_DEVICE = "no-device", "0.1.0", "No usable device",
        "The plugin works, but has no device to run on; its reasons, each with a code of its own, are in the sentence.",
        "See the code of each reason.";
    NO_DRIVER = "no-driver", "0.1.0", "No driver is installed",
        "The plugin says that the driver of its hardware is not installed.",
        "Install the driver of the hardware's maker.";
    DRIVER_TOO_OLD = "driver-too-old", "0.1.0", "The driver is too old",
        "The plugin says that the installed driver is older than it needs.",
        "Update the driver.";
    NO_HARDWARE = "no-hardware", "0.1.0", "The hardware is not there",
        "The plugin says that the machine has no hardware of its kind, or that it is hidden from this process.",
        "Run on a machine that has it; in a container, hand the device through.";
    UNSUPPORTED_HARDWARE = "unsupported-hardware", "0.1.0", "The hardware is not supported",
        "The plugin says that the hardware is there, but of a kind that it does not support.",
        "Use another EP for this hardware.";
    PERMISSION = "permission", "0.1.0", "This user may not use the hardware",
        "The plugin says that the user may not open the device.",
        "Give the user the right to the device; on Linux this is mostly membership in a group.";
    DISABLED = "disabled", "0.1.0", "Switched off",
        "The plugin says that an option or an environment variable switched its devices off.",
        "Remove the option or variable that the sentence names.";
    DEVICE_ERROR = "device-error", "0.1.0", "Asking for devices failed",
        "The plugin says that asking its driver for devices failed.",
        "The plugin's words say more; restarting the driver often helps.";
}
