//! The pickle opcodes: bytes, names and operands.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    None,
    /// A fixed number of bytes.
    Fixed(u8),
    /// A line ending in `\n`.
    Line,
    TwoLines,
    /// A length in this many bytes, then that many bytes.
    Counted(u8),
}

macro_rules! opcodes {
    ($($name:ident = $byte:literal, $operand:expr;)* [forbidden] $($evil:ident = $evil_byte:literal, $evil_operand:expr;)*) => {
        $(pub(crate) const $name: u8 = $byte;)*

        /// The opcode's name in `pickletools`; `None` for bytes that are no opcode up to protocol 5.
        pub(crate) fn name(opcode: u8) -> Option<&'static str> {
            match opcode {
                $($byte => Some(stringify!($name)),)*
                $($evil_byte => Some(stringify!($evil)),)*
                _ => None,
            }
        }

        pub(crate) fn operand(opcode: u8) -> Option<Operand> {
            match opcode { $($byte => Some($operand),)* $($evil_byte => Some($evil_operand),)* _ => None }
        }

        /// True for the opcodes that import, call, build or fetch objects from outside the file. None is ever executed.
        pub(crate) fn is_forbidden(opcode: u8) -> bool {
            matches!(opcode, $($evil_byte)|*)
        }
    };
}

opcodes! {
    MARK = b'(', Operand::None;
    STOP = b'.', Operand::None;
    POP = b'0', Operand::None;
    POP_MARK = b'1', Operand::None;
    DUP = b'2', Operand::None;
    FLOAT = b'F', Operand::Line;
    INT = b'I', Operand::Line;
    BININT = b'J', Operand::Fixed(4);
    BININT1 = b'K', Operand::Fixed(1);
    LONG = b'L', Operand::Line;
    BININT2 = b'M', Operand::Fixed(2);
    NONE = b'N', Operand::None;
    STRING = b'S', Operand::Line;
    BINSTRING = b'T', Operand::Counted(4);
    SHORT_BINSTRING = b'U', Operand::Counted(1);
    UNICODE = b'V', Operand::Line;
    BINUNICODE = b'X', Operand::Counted(4);
    APPEND = b'a', Operand::None;
    DICT = b'd', Operand::None;
    EMPTY_DICT = b'}', Operand::None;
    APPENDS = b'e', Operand::None;
    GET = b'g', Operand::Line;
    BINGET = b'h', Operand::Fixed(1);
    LONG_BINGET = b'j', Operand::Fixed(4);
    LIST = b'l', Operand::None;
    EMPTY_LIST = b']', Operand::None;
    PUT = b'p', Operand::Line;
    BINPUT = b'q', Operand::Fixed(1);
    LONG_BINPUT = b'r', Operand::Fixed(4);
    SETITEM = b's', Operand::None;
    TUPLE = b't', Operand::None;
    EMPTY_TUPLE = b')', Operand::None;
    SETITEMS = b'u', Operand::None;
    BINFLOAT = b'G', Operand::Fixed(8);
    PROTO = 0x80, Operand::Fixed(1);
    TUPLE1 = 0x85, Operand::None;
    TUPLE2 = 0x86, Operand::None;
    TUPLE3 = 0x87, Operand::None;
    NEWTRUE = 0x88, Operand::None;
    NEWFALSE = 0x89, Operand::None;
    LONG1 = 0x8a, Operand::Counted(1);
    LONG4 = 0x8b, Operand::Counted(4);
    BINBYTES = b'B', Operand::Counted(4);
    SHORT_BINBYTES = b'C', Operand::Counted(1);
    SHORT_BINUNICODE = 0x8c, Operand::Counted(1);
    BINUNICODE8 = 0x8d, Operand::Counted(8);
    BINBYTES8 = 0x8e, Operand::Counted(8);
    EMPTY_SET = 0x8f, Operand::None;
    ADDITEMS = 0x90, Operand::None;
    FROZENSET = 0x91, Operand::None;
    MEMOIZE = 0x94, Operand::None;
    FRAME = 0x95, Operand::Fixed(8);
    BYTEARRAY8 = 0x96, Operand::Counted(8);
    [forbidden]
    PERSID = b'P', Operand::Line;
    BINPERSID = b'Q', Operand::None;
    REDUCE = b'R', Operand::None;
    BUILD = b'b', Operand::None;
    GLOBAL = b'c', Operand::TwoLines;
    INST = b'i', Operand::TwoLines;
    OBJ = b'o', Operand::None;
    NEWOBJ = 0x81, Operand::None;
    EXT1 = 0x82, Operand::Fixed(1);
    EXT2 = 0x83, Operand::Fixed(2);
    EXT4 = 0x84, Operand::Fixed(4);
    NEWOBJ_EX = 0x92, Operand::None;
    STACK_GLOBAL = 0x93, Operand::None;
    NEXT_BUFFER = 0x97, Operand::None;
    READONLY_BUFFER = 0x98, Operand::None;
}
