/** Points of edwards25519, as far as public keys have to be checked: Node does not check them. */

const P = 2n ** 255n - 19n;
const D = mod(-121665n * power(121666n, P - 2n));
/** The y coordinates of the points of small order, reduced. */
const SMALL_ORDER = new Set([
  0n,
  1n,
  P - 1n,
  2707385501144840649318225287225658788936804267575313519463743609750303402022n,
  55188659117513257062467267217118295137698188065244968500265048394206261417927n,
]);

/** Whether 32 bytes are a public key: a point of the curve that is not of small order. */
export function isPublicKey(bytes: Uint8Array): boolean {
  const number = BigInt(`0x${Buffer.from(bytes).reverse().toString("hex")}`);
  const y = mod(number & (2n ** 255n - 1n));
  if (SMALL_ORDER.has(y)) return false;
  const square = mod(y * y);
  const x2 = mod((square - 1n) * power(mod(D * square + 1n), P - 2n));
  // Euler's criterion: whether x has a square root.
  return power(x2, (P - 1n) / 2n) === 1n;
}

function mod(value: bigint): bigint {
  const rest = value % P;
  return rest < 0n ? rest + P : rest;
}

function power(base: bigint, exponent: bigint): bigint {
  let [result, square] = [1n, mod(base)];
  for (let rest = exponent; rest > 0n; rest >>= 1n) {
    if (rest & 1n) result = mod(result * square);
    square = mod(square * square);
  }
  return result;
}
