//! CRC-32 of IEEE 802.3, which is part of the text that `PayPal` signs.
//!
//! It is computed byte by byte, with a table that is made at compile time. It does not protect
//! against changes on purpose.

/// The polynomial, with its bits reversed.
const POLYNOMIAL: u32 = 0xedb8_8320;
const TABLE: [u32; 256] = table();

/// The checksum of some bytes.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let next = |crc: u32, byte: &u8| {
        let place = (crc ^ u32::from(*byte)) & 0xff;
        (crc >> 8) ^ TABLE[place as usize]
    };
    !bytes.iter().fold(!0, next)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut place = 0_u32;
    while place < 256 {
        let mut value = place;
        let mut bit = 0;
        while bit < 8 {
            let is_odd = value & 1 == 1;
            value >>= 1;
            if is_odd {
                value ^= POLYNOMIAL;
            }
            bit += 1;
        }
        table[place as usize] = value;
        place += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_the_catalogue_come_out() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"a"), 0xe8b7_be43);
    }
}
