import { Modal } from "@mantine/core";
import type { ReactNode } from "react";

/** A dialog in the middle of the page, which has a name for its way out. */
export function Dialog({
  opened,
  onClose,
  title,
  children,
}: {
  opened: boolean;
  onClose: () => void;
  title: string;
  children: ReactNode;
}) {
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      title={title}
      centered
      closeButtonProps={{ "aria-label": "Close" }}
    >
      {children}
    </Modal>
  );
}
