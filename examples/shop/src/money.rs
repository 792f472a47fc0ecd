//! Valid amounts and currencies: minor units of an active ISO 4217 currency.

use std::ops::RangeInclusive;

/// The amounts that the shop accepts, in minor units.
pub(crate) const AMOUNTS: RangeInclusive<i64> = 1..=99_999_999;

/// The active ISO 4217 codes of currencies (without metals and test codes), sorted.
const CODES: &str = "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BOV BRL \
    BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD \
    EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR \
    ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD \
    MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR \
    PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB \
    TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST XAF XCD \
    XCG XOF XPF YER ZAR ZMW ZWG";

/// Returns whether `code` is an active currency code, in capitals.
pub(crate) fn is_currency(code: &str) -> bool {
    code.len() == 3
        && code.bytes().all(|byte| byte.is_ascii_uppercase())
        && CODES.split_ascii_whitespace().any(|known| known == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_currency_is_an_active_code_in_capitals() {
        for known in ["EUR", "USD", "AED", "ZWG", "XOF", "JPY"] {
            assert!(is_currency(known), "{known}");
        }
        for unknown in [
            "eur", "EU", "EURO", "XXX", "DEM", "", "E R", "UR ", "BGN", "ANG",
        ] {
            assert!(!is_currency(unknown), "{unknown:?}");
        }
    }

    #[test]
    fn the_codes_stand_sorted_and_once() {
        let codes: Vec<&str> = CODES.split_ascii_whitespace().collect();
        assert!(codes.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
