/**
 * Numbers by their decimal value: the digits without zeros at either end, and a power of ten.
 * `4200`, `4200.0` and `4.2e3` are all `42e2`. The value is exact at any size, so two integers that
 * are equal as doubles remain different. A zero has no sign and no power.
 */
export function decimalValue(token: string): string {
  const [mantissa = "", exponent = "0"] = token.split(/[eE]/);
  const [whole = "", fraction = ""] = mantissa.split(".");
  const sign = whole.startsWith("-") ? "-" : "";
  const digits = (whole.slice(sign.length) + fraction).replace(/^0+/, "");
  if (digits === "") return "0";
  const short = trimZeros(digits);
  const power =
    BigInt(exponent.replace(/^\+/, "")) + BigInt(digits.length - short.length - fraction.length);
  return power === 0n ? sign + short : `${sign}${short}e${power}`;
}

/** Removes zeros at the end. A regular expression would take quadratic time. */
function trimZeros(digits: string): string {
  let end = digits.length;
  while (digits.charCodeAt(end - 1) === 0x30) end -= 1;
  return digits.slice(0, end);
}
