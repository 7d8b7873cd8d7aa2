import { Anchor, Button, type AnchorProps, type ButtonProps } from "@mantine/core";
import { createLink } from "@tanstack/react-router";
import type { AnchorHTMLAttributes, Ref } from "react";

type Base = Omit<AnchorHTMLAttributes<HTMLAnchorElement>, keyof AnchorProps> & {
  ref?: Ref<HTMLAnchorElement>;
};

function RoutedAnchor({ ref, ...props }: AnchorProps & Base) {
  return <Anchor ref={ref} {...props} />;
}
function RoutedButton({ ref, ...props }: ButtonProps & Omit<Base, keyof ButtonProps>) {
  return <Button component="a" ref={ref} {...props} />;
}

export const LinkTo = createLink(RoutedAnchor);
export const ButtonTo = createLink(RoutedButton);
