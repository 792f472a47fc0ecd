import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig(
  { ignores: ["dist", "build", "eslint.config.js", "examples/*.js"] },
  tseslint.configs.strictTypeChecked,
  tseslint.configs.stylisticTypeChecked,
  {
    languageOptions: {
      parserOptions: {
        project: ["./tsconfig.json", "./tsconfig.test.json"],
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      "@typescript-eslint/consistent-type-imports": "error",
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      // A caller names the type of a message or of a vector.
      "@typescript-eslint/no-unnecessary-type-parameters": "off",
      "max-lines": ["error", { max: 400, skipBlankLines: true }],
      "max-lines-per-function": ["error", { max: 70 }],
      eqeqeq: "error",
    },
  },
  {
    // An adapter is thin: what it does is written once, in the core.
    files: ["src/*.ts"],
    ignores: ["src/client.ts", "src/inbox.ts", "src/testing.ts"],
    rules: { "max-lines": ["error", { max: 200 }] },
  },
  {
    files: ["test/**/*.ts"],
    rules: {
      "max-lines-per-function": "off",
      // Drivers and frameworks are called through one interface.
      "@typescript-eslint/no-unsafe-assignment": "off",
      "@typescript-eslint/no-unsafe-call": "off",
      "@typescript-eslint/no-unsafe-member-access": "off",
      "@typescript-eslint/no-unsafe-return": "off",
      "@typescript-eslint/no-unsafe-argument": "off",
      "@typescript-eslint/no-unsafe-class-instance-assignment": "off",
      "@typescript-eslint/unbound-method": "off",
      "@typescript-eslint/require-await": "off",
      "@typescript-eslint/no-floating-promises": "off",
      "@typescript-eslint/no-extraneous-class": "off",
    },
  },
);
